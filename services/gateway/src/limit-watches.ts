import type { Interceptor, StreamResponse } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { principalKey } from "@runmesh/platform/principal";

/** Of one credential at a time. Each looks at the database again and again for as long as it is open. */
const MAX_WATCHES = 1_000;
const RETRY_AFTER_MS = 5_000;

/**
 * Server interceptor, after authentication: OVERLOADED where a credential has as many streams open as it may. Sessions of
 * workers are not among them: they have limits of their own.
 */
export function limitWatches(most = MAX_WATCHES): Interceptor {
  const open = new Map<string, number>();

  function add(name: string, change: number): void {
    const count = (open.get(name) ?? 0) + change;
    if (count === 0) open.delete(name);
    else open.set(name, count);
  }

  return (next) => async (request) => {
    const principal = request.contextValues.get(principalKey);
    const { methodKind, parent } = request.method;
    if (principal === undefined || methodKind !== "server_streaming" || parent === LeaseService) return next(request);
    const name = `${principal.tenantId}:${principal.name}`;
    if ((open.get(name) ?? 0) >= most) {
      throw new MeshError("OVERLOADED", `this credential has ${most} watches open`, { retryAfterMs: RETRY_AFTER_MS });
    }
    add(name, 1);
    let isOpen = true;
    const close = () => {
      if (isOpen) add(name, -1);
      isOpen = false;
    };
    // A stream whose caller left before it was read is never iterated, so its end shows in the signal alone.
    request.signal.addEventListener("abort", close, { once: true });
    try {
      const response = (await next(request)) as StreamResponse;
      return { ...response, message: untilEnd(response.message, close) } as StreamResponse;
    } catch (error) {
      close();
      throw error;
    }
  };
}

async function* untilEnd<T>(messages: AsyncIterable<T>, close: () => void): AsyncGenerator<T> {
  try {
    yield* messages;
  } finally {
    close();
  }
}
