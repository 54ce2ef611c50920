import { type ClientRequest, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { Code, ConnectError } from "@connectrpc/connect";

export interface Posted {
  /** With its scheme, host and connections. */
  readonly to: RequestOptions;
  readonly path: string;
  /** Names and values in turn, which costs less than an object of them; `host` is among them. */
  readonly headers: readonly string[];
  readonly body: Uint8Array;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number | undefined;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Uint8Array;
}

/** Far above what a server answers: what it does not bound, memory does. */
const MAX_REPLY_BYTES = 256 * 1024 * 1024;
/** Node takes no longer timer, and fires one that is longer at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Sends one request and reads the whole reply, whatever its status. Rejects with UNAVAILABLE when the connection
 * fails, and with what ended the call early otherwise. No signal is made for a call: a timer and a listener do.
 */
export function post({ to, path, headers, body, signal, timeoutMs }: Posted): Promise<Reply> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(endOf(signal));
    const send = to.protocol === "https:" ? httpsRequest : httpRequest;
    const request: ClientRequest = send({ ...to, method: "POST", path, headers: headers as string[] });
    const unwatch = watch(signal, timeoutMs, fail);
    // It stays until the socket is done with: a late error finds the call settled.
    request.on("error", (error) => fail(broken(error)));
    let hasReply = false;
    request.on("response", (response) => {
      hasReply = true;
      readReply(response, succeed, fail);
    });
    // After an answer that switches to another protocol, which nobody asked for, there is neither a reply nor an error.
    request.on("close", () => {
      if (!hasReply) fail(new ConnectError("the connection closed without an answer", Code.Unavailable));
    });
    request.end(body);

    function succeed(reply: Reply): void {
      unwatch();
      resolve(reply);
    }

    function fail(error: ConnectError): void {
      unwatch();
      reject(error);
      request.destroy();
    }
  });
}

/** Calls `end` when the caller gives up or its time is over. Answers what stops watching. */
export function watch(
  signal: AbortSignal | undefined,
  timeoutMs: number | undefined,
  end: (error: ConnectError) => void,
): () => void {
  const onAbort = () => end(endOf(signal!));
  const onTimeout = () => end(new ConnectError("the operation timed out", Code.DeadlineExceeded));
  signal?.addEventListener("abort", onAbort);
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, Math.min(timeoutMs, MAX_TIMER_MS));
  return () => {
    signal?.removeEventListener("abort", onAbort);
    clearTimeout(timer);
  };
}

/** What a call rejects with whose signal is aborted. */
export function endOf(signal: AbortSignal): ConnectError {
  return ConnectError.from(signal.reason, Code.Canceled);
}

function readReply(
  response: IncomingMessage,
  succeed: (reply: Reply) => void,
  fail: (error: ConnectError) => void,
): void {
  const chunks: Buffer[] = [];
  let size = 0;
  response.on("data", (chunk: Buffer) => {
    size += chunk.length;
    if (size > MAX_REPLY_BYTES) fail(new ConnectError("the answer is too large", Code.ResourceExhausted));
    else chunks.push(chunk);
  });
  response.on("error", (error) => fail(broken(error)));
  response.on("end", () => {
    const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    // Fields of bytes are views of it, and callers expect them to be no Buffers.
    const body = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
    succeed({ status: response.statusCode ?? 0, headers: response.headers, body });
  });
}

function broken(error: Error): ConnectError {
  return new ConnectError(error.message, Code.Unavailable, undefined, undefined, error);
}
