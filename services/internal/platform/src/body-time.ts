import { constants } from "node:http2";
import type { Writable } from "node:stream";
import { Code, ConnectError } from "@connectrpc/connect";
import type { NodeRequest, NodeResponse } from "./one-port-server.ts";
import { BODY_TIMEOUT_MS } from "./rpc-limits.ts";

/** How long an answer has from its last byte to its trailers, whose sending nothing tells. */
export const TRAILERS_TIMEOUT_MS = 1_000;

/** A request whose body is still to be read. */
export interface Incoming {
  readonly request: NodeRequest;
  readonly response: NodeResponse;
  readonly bodyTime: BodyTime;
}

/**
 * The time that the body of a request has to come to its end, counted from its head, over every protocol. When it is over,
 * who reads the body is told what to answer, and once an answer is out the body is closed: its rest may never come.
 */
export class BodyTime {
  readonly #request: NodeRequest;
  readonly #response: NodeResponse;
  #timer: NodeJS.Timeout | undefined;
  #over: ConnectError | undefined;
  #tell: ((error: ConnectError) => void) | undefined;

  constructor(request: NodeRequest, response: NodeResponse) {
    this.#request = request;
    this.#response = response;
    this.start();
    // Every request closes, whether anybody read it or not.
    request.once("close", () => this.stop());
  }

  /** Goes on where it is running already. */
  start(): void {
    this.#timer ??= setTimeout(() => this.#end(), BODY_TIMEOUT_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Who reads the body; at most one at a time. */
  onOver(tell: (error: ConnectError) => void): void {
    this.#tell = tell;
    if (this.#over !== undefined) tell(this.#over);
  }

  #end(): void {
    const request = this.#request;
    if (isWhole(request)) return;
    const seconds = BODY_TIMEOUT_MS / 1_000;
    this.#over = new ConnectError(`the request did not come to its end within ${seconds} s`, Code.DeadlineExceeded);
    // A response of HTTP/2 says that it is finished only when its stream has closed.
    const out: Writable = "stream" in request ? request.stream : this.#response;
    if (out.writableFinished) {
      this.#close();
      return;
    }
    out.once("finish", () => {
      this.#timer = setTimeout(() => this.#close(), TRAILERS_TIMEOUT_MS);
    });
    if (request.httpVersionMajor === 1 && !this.#response.headersSent) this.#response.setHeader("connection", "close");
    this.#tell?.(this.#over);
  }

  #close(): void {
    const request = this.#request;
    // RFC 9113, 8.1: the answer is whole, and the rest of the request is not wanted.
    if ("stream" in request) request.stream.close(constants.NGHTTP2_NO_ERROR);
    else request.socket.destroySoon();
  }
}

/** Whether all of it has arrived, though perhaps nobody has read it. */
function isWhole(request: NodeRequest): boolean {
  return "stream" in request ? request.stream.state.remoteClose === 1 : request.complete;
}
