import type { Compression } from "@connectrpc/connect/protocol";
import type { BodyTime } from "./body-time.ts";
import { tooLarge } from "./read-body.ts";
import { MAX_REQUEST_BYTES } from "./rpc-limits.ts";

const HEAD_BYTES = 5;
const COMPRESSED = 1;

/** How much of a refused request is still read and dropped, so that the caller gets to read the answer. */
const MAX_DROPPED_BYTES = 64 * 1024 * 1024;

export interface EnvelopeChecks {
  /** Throws what is wrong with a message. */
  readonly check: (message: Uint8Array) => void;
  readonly compression: Compression | undefined;
  /** What the caller is told of an error. */
  readonly told: (error: unknown) => Error;
  readonly time: BodyTime;
  /** Whether the caller may send messages for as long as it likes: then each has its own time, once it has begun. */
  readonly isOpenEnded: boolean;
}

/** Passes a stream of envelopes on, each message of which is checked for its size, its time and by `check` first. */
export async function* checkEnvelopes(
  body: AsyncIterable<Uint8Array>,
  { check, compression, told, time, isOpenEnded }: EnvelopeChecks,
): AsyncIterable<Uint8Array> {
  const source = body[Symbol.asyncIterator]();
  let chunks: Uint8Array[] = [];
  let size = 0;
  let needed = HEAD_BYTES;
  let isRefused = false;
  try {
    for (;;) {
      const { done, value } = await nextInTime(source, time);
      if (done) break;
      chunks.push(value);
      size += value.length;
      if (isOpenEnded) time.start();
      if (size < needed) continue;
      let rest = chunks.length === 1 ? value : Buffer.concat(chunks);
      for (needed = readSize(rest); rest.length >= needed; needed = readSize(rest)) {
        await checkOne(rest.subarray(0, needed), check, compression);
        if (isOpenEnded) time.stop();
        yield rest.subarray(0, needed);
        rest = rest.subarray(needed);
      }
      chunks = [rest];
      size = rest.length;
      if (isOpenEnded && size > 0) time.start();
    }
    time.stop();
    // What is left is half an envelope, which the library refuses.
    if (size > 0) yield Buffer.concat(chunks);
  } catch (error) {
    isRefused = true;
    drop(source).catch(() => {});
    throw told(error);
  } finally {
    if (!isRefused) await source.return?.();
  }
}

function nextInTime<T>(source: AsyncIterator<T>, time: BodyTime): Promise<IteratorResult<T>> {
  return new Promise((resolve, reject) => {
    time.onOver(reject);
    source.next().then(resolve, reject);
  });
}

/** Bytes of the first envelope, its head included; those of a head as long as there is none. */
function readSize(bytes: Uint8Array): number {
  if (bytes.length < HEAD_BYTES) return HEAD_BYTES;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
  if (length > MAX_REQUEST_BYTES) throw tooLarge(MAX_REQUEST_BYTES);
  return HEAD_BYTES + length;
}

/** Other flags end a stream and carry no message; an unknown compression is refused by the library. */
async function checkOne(envelope: Uint8Array, check: (message: Uint8Array) => void, compression?: Compression) {
  const message = envelope.subarray(HEAD_BYTES);
  if (envelope[0] === 0) check(message);
  else if (envelope[0] === COMPRESSED && compression !== undefined) {
    check(await compression.decompress(message, MAX_REQUEST_BYTES));
  }
}

/** A connection whose request was left unread could not carry the next one. */
async function drop(source: AsyncIterator<Uint8Array>): Promise<void> {
  for (let size = 0; size < MAX_DROPPED_BYTES; ) {
    const { done, value } = await source.next();
    if (done) return;
    size += value.length;
  }
  await source.return?.();
}
