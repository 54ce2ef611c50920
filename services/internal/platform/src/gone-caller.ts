import { Code, ConnectError } from "@connectrpc/connect";
import { callerLeft, isClosed } from "./call-signal.ts";
import type { NodeResponse } from "./one-port-server.ts";

/** Whether an error says no more than that the caller left, or was told to. */
export const isCallerLeft = (error: unknown): boolean => error instanceof ConnectError && error.code === Code.Canceled;

/**
 * The body of an answer. Its writer throws into it what went wrong in writing, which may be sooner than the call's
 * signal aborts: where the caller is gone the handler learns that, and not how the socket put it.
 */
export function tellOfLeaving(body: AsyncIterable<Uint8Array>, response: NodeResponse): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]() {
      const source = body[Symbol.asyncIterator]();
      return {
        next: () => source.next(),
        async return() {
          return (await source.return?.()) ?? { done: true, value: undefined };
        },
        async throw(error: unknown) {
          const told = isClosed(response) ? callerLeft(error) : error;
          return (await source.throw?.(told)) ?? { done: true, value: undefined };
        },
      };
    },
  };
}
