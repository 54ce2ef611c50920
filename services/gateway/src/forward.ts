import type { DescMethod, DescService } from "@bufbuild/protobuf";
import {
  type CallOptions,
  type ConnectRouter,
  createClient,
  type HandlerContext,
  type ServiceImpl,
  type Transport,
} from "@connectrpc/connect";

/** Headers of a caller that go on to the service behind. The principal and the request id go by the context. */
const FORWARDED_HEADERS = ["traceparent", "tracestate"];

type AnyCall = (request: unknown, options: CallOptions) => unknown;

/** Serves every method of a service by calling the same method of the service behind the transport. */
export function forward(router: ConnectRouter, service: DescService, transport: Transport): void {
  const client = createClient(service, transport) as Record<string, AnyCall>;
  const methods = service.methods.map((method) => [method.localName, forwardMethod(method, client[method.localName]!)]);
  router.service(service, Object.fromEntries(methods) as Partial<ServiceImpl<DescService>>);
}

function forwardMethod(method: DescMethod, call: AnyCall) {
  if (method.methodKind !== "unary" && method.methodKind !== "server_streaming") {
    throw new Error(`${method.parent.typeName}/${method.name} streams from the client, which is not forwarded`);
  }
  return (request: unknown, context: HandlerContext) => call(request, toOptions(context));
}

function toOptions(context: HandlerContext): CallOptions {
  const headers = new Headers();
  for (const name of FORWARDED_HEADERS) {
    const value = context.requestHeader.get(name);
    if (value !== null) headers.set(name, value);
  }
  const timeoutMs = context.timeoutMs();
  return {
    headers,
    signal: context.signal,
    contextValues: context.values,
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}
