import type { Compression } from "@connectrpc/connect/protocol";
import { tooLarge } from "./body-guard.ts";
import { MAX_REQUEST_BYTES } from "./rpc-limits.ts";

const HEAD_BYTES = 5;
const COMPRESSED = 1;

/** Passes a stream of envelopes on, each message of which is checked for its size and by `check` first. */
export async function* checkEnvelopes(
  body: AsyncIterable<Uint8Array>,
  check: (message: Uint8Array) => void,
  compression: Compression | undefined,
  told: (error: unknown) => Error,
): AsyncIterable<Uint8Array> {
  let buffer: Uint8Array = new Uint8Array();
  for await (const chunk of body) {
    buffer = buffer.length === 0 ? chunk : Buffer.concat([buffer, chunk]);
    let start = 0;
    while (buffer.length - start >= HEAD_BYTES) {
      const head = new DataView(buffer.buffer, buffer.byteOffset + start, HEAD_BYTES);
      const length = head.getUint32(1);
      if (length > MAX_REQUEST_BYTES) throw told(tooLarge(MAX_REQUEST_BYTES));
      const end = start + HEAD_BYTES + length;
      if (buffer.length < end) break;
      const flags = head.getUint8(0);
      const message = buffer.subarray(start + HEAD_BYTES, end);
      try {
        // Other flags end a stream and carry no message; an unknown compression is refused by the library.
        if (flags === 0) check(message);
        else if (flags === COMPRESSED && compression !== undefined) {
          check(await compression.decompress(message, MAX_REQUEST_BYTES));
        }
      } catch (error) {
        throw told(error);
      }
      yield buffer.subarray(start, end);
      start = end;
    }
    buffer = buffer.subarray(start);
  }
  // What is left is half an envelope, which the library refuses.
  if (buffer.length > 0) yield buffer;
}
