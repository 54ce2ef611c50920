import { Code, ConnectError } from "@connectrpc/connect";
import type { NodeResponse } from "./one-port-server.ts";

/** Node takes no longer timer, and fires one that is longer at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** One for all calls: a DOMException of its own costs a call 10 µs for its stack. */
const ENDED = new DOMException("This operation was aborted", "AbortError");

/** The calls of one server whose signals somebody asked for. */
export class CallSignals {
  readonly #shutdown: AbortSignal;
  readonly #open = new Set<CallSignal>();

  constructor(shutdown: AbortSignal) {
    this.#shutdown = shutdown;
    shutdown.addEventListener("abort", () => this.#abortAll(), { once: true });
  }

  create(response: NodeResponse, timeoutMs: number | undefined): CallSignal {
    return new CallSignal(this.#open, this.#shutdown, response, timeoutMs);
  }

  #abortAll(): void {
    for (const call of this.#open) call.abort(this.#shutdown.reason);
  }
}

/**
 * The signal and the deadline of one call. It aborts when the caller leaves, when the call's time is over, when the
 * server stops, and at the call's end. It is made when it is first asked for, which most handlers never do.
 */
export class CallSignal {
  readonly #open: Set<CallSignal>;
  readonly #shutdown: AbortSignal;
  readonly #response: NodeResponse;
  readonly #deadline: number | undefined;
  readonly #onClose = () => this.abort(callerLeft());
  #controller: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  #ended: { readonly reason: unknown } | undefined;

  constructor(open: Set<CallSignal>, shutdown: AbortSignal, response: NodeResponse, timeoutMs: number | undefined) {
    this.#open = open;
    this.#shutdown = shutdown;
    this.#response = response;
    this.#deadline = timeoutMs === undefined ? undefined : Date.now() + timeoutMs;
  }

  /** What is left of the caller's time; undefined where it set none. */
  restMs(): number | undefined {
    return this.#deadline === undefined ? undefined : this.#deadline - Date.now();
  }

  get(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      this.#watch();
    }
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#unwatch();
    this.#controller?.abort(reason);
  }

  /** The call is over: who still waits on the signal need not. The first reason counts. */
  end(reason: unknown = ENDED): void {
    if (this.#ended !== undefined) return;
    this.#ended = { reason };
    if (this.#controller !== undefined) this.abort(reason);
  }

  #watch(): void {
    const restMs = this.restMs();
    const past = this.#findPast(restMs);
    if (past !== undefined) {
      this.abort(past.reason);
      return;
    }
    this.#open.add(this);
    this.#response.once("close", this.#onClose);
    if (restMs !== undefined) {
      this.#timer = setTimeout(() => this.abort(timedOut()), Math.min(restMs, MAX_TIMER_MS));
    }
  }

  /** What had ended the call before anybody asked for its signal. */
  #findPast(restMs: number | undefined): { readonly reason: unknown } | undefined {
    if (this.#ended !== undefined) return this.#ended;
    if (restMs !== undefined && restMs <= 0) return { reason: timedOut() };
    if (isClosed(this.#response)) return { reason: callerLeft() };
    return this.#shutdown.aborted ? { reason: this.#shutdown.reason } : undefined;
  }

  #unwatch(): void {
    this.#open.delete(this);
    this.#response.off("close", this.#onClose);
    clearTimeout(this.#timer);
  }
}

/** Nobody can be answered any more. */
export function isClosed(response: NodeResponse): boolean {
  return "stream" in response ? response.stream.destroyed : response.destroyed;
}

export const callerLeft = (cause?: unknown) =>
  new ConnectError("the caller went away", Code.Canceled, undefined, undefined, cause);
const timedOut = () => new ConnectError("the operation timed out", Code.DeadlineExceeded);
