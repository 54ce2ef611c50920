import { randomBytes } from "node:crypto";
import { type ConnectRouter, createRouterTransport, type Interceptor, type Transport } from "@connectrpc/connect";
import { createDirectTransport, type InProcessOptions } from "./direct-transport.ts";
import { acceptPrincipal, forwardPrincipal } from "./principal-token.ts";
import { REQUEST_ID_HEADER, requestIdKey } from "./request-id.ts";
import { MAX_RECURSION } from "./rpc-limits.ts";

export type { InProcessOptions } from "./direct-transport.ts";

/**
 * Calls services of this process without a socket. Pass `contextValues: context.values` with a call, so that the
 * principal and the request id go along.
 *
 * `serialize` goes through the library's protocol code, bytes included, which costs several times as much: for
 * tests that must see what a wire would do to a message.
 */
export function createInProcessTransport(
  routes: (router: ConnectRouter) => void,
  options: InProcessOptions & { readonly serialize?: boolean },
): Transport {
  return options.serialize === true ? createSerializing(routes, options) : createDirectTransport(routes, options);
}

function createSerializing(routes: (router: ConnectRouter) => void, options: InProcessOptions): Transport {
  const token = { secret: randomBytes(32), audience: "in-process" };
  const binaryOptions = { recursionLimit: MAX_RECURSION };
  return createRouterTransport(routes, {
    router: {
      interceptors: [acceptPrincipal(token), ...options.interceptors],
      binaryOptions,
      ...(options.shutdownSignal !== undefined && { shutdownSignal: options.shutdownSignal }),
    },
    transport: {
      interceptors: [...(options.clientInterceptors ?? []), forwardPrincipal(token), forwardRequestId],
      binaryOptions,
    },
  });
}

const forwardRequestId: Interceptor = (next) => (request) => {
  const requestId = request.contextValues.get(requestIdKey);
  if (requestId !== "") request.header.set(REQUEST_ID_HEADER, requestId);
  return next(request);
};
