import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { create, type DescMessage, type DescService, type Message } from "@bufbuild/protobuf";
import { type CallOptions, type Client, createClient, type Transport } from "@connectrpc/connect";
import { type MeshError, readCallError } from "./errors.ts";

export interface CallPolicy {
  /** Deadline of a call, its repeats included. */
  readonly timeoutMs: number;
  /** Tries of a call that was refused with UNAVAILABLE or OVERLOADED. 1 means no repeats. */
  readonly attempts: number;
}

const BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;

/**
 * A client of a generated service that rejects with `MeshError`, has a deadline, and repeats what may be repeated.
 * That is every call: those that create or move carry a request id, given here where the caller gave none, under which
 * the server answers a repeat as it did the first.
 */
export function createServiceClient<S extends DescService>(
  service: S,
  transport: Transport,
  policy: CallPolicy,
): Client<S> {
  const raw = createClient(service, transport) as unknown as Record<string, AnyCall>;
  const methods = service.methods.map((method) => {
    const call = raw[method.localName]!;
    const wrapped =
      method.methodKind === "unary"
        ? (request: object, options?: CallOptions) =>
            repeat(call, withRequestId(method.input, request), policy, options ?? {})
        : (request: object, options?: CallOptions) => translated(call, request, options ?? {});
    return [method.localName, wrapped];
  });
  return Object.fromEntries(methods) as Client<S>;
}

type AnyCall = (request: object, options?: CallOptions) => unknown;

async function repeat(call: AnyCall, request: object, policy: CallPolicy, options: CallOptions): Promise<unknown> {
  const deadline = performance.now() + (options.timeoutMs ?? policy.timeoutMs);
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(request, { ...options, timeoutMs: Math.max(1, Math.ceil(deadline - performance.now())) });
    } catch (thrown) {
      const error = readCallError(thrown);
      const wait = backoffMs(attempt, error);
      const late = performance.now() + wait >= deadline;
      if (attempt >= policy.attempts || late || !isTransient(error) || options.signal?.aborted) throw error;
      await delay(wait, undefined, options.signal && { signal: options.signal }).catch(() => {
        throw error;
      });
    }
  }
}

/** A stream that its reader leaves is cancelled, which the generated client would not do. */
async function* translated(call: AnyCall, request: object, options: CallOptions): AsyncGenerator<unknown> {
  const left = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, left.signal]) : left.signal;
  try {
    yield* call(request, { ...options, signal }) as AsyncIterable<unknown>;
  } catch (thrown) {
    throw readCallError(thrown);
  } finally {
    left.abort();
  }
}

/** Nothing was decided: the same call may succeed later. */
export function isTransient(error: MeshError): boolean {
  return error.reason === "UNAVAILABLE" || error.reason === "OVERLOADED";
}

/** The wait before the try after `attempt`: the server's word where it gave one, spread so that callers part. */
export function backoffMs(attempt: number, error?: MeshError): number {
  const asked = error?.retryAfterMs;
  if (asked !== undefined) return asked * (1 + 0.2 * Math.random());
  const most = Math.min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** Math.min(attempt - 1, 10));
  return most * (0.5 + 0.5 * Math.random());
}

function withRequestId(input: DescMessage, request: object): object {
  if (input.field.requestId === undefined || (request as { requestId?: string }).requestId) return request;
  const message = create(input, request as Message) as Message & { requestId: string };
  return Object.assign(message, { requestId: randomUUID() });
}
