import type { DescMethod } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ContextValues,
  createContextValues,
  createHandlerContext,
  type HandlerContext,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";
import {
  getAbortSignalReason,
  invokeUnaryImplementation,
  runStreamingCall,
  runUnaryCall,
  transformInvokeImplementation,
} from "@connectrpc/connect/protocol";
import { MeshError } from "@runmesh/domain/errors";
import { collectSpecs } from "./method-specs.ts";
import { principalKey } from "./principal.ts";
import { REQUEST_ID_HEADER, requestIdKey } from "./request-id.ts";
import { toConnectError } from "./rpc-errors.ts";

export interface InProcessOptions {
  /** Of the server side, outermost first; begin with `errorInterceptor`. */
  readonly interceptors: readonly Interceptor[];
  /** Of the client side. */
  readonly clientInterceptors?: readonly Interceptor[];
  /** Ends streams when the process stops. */
  readonly shutdownSignal?: AbortSignal;
}

/**
 * Calls the routes in this process and hands messages over as they are, without writing or reading bytes.
 * Whoever gets a message shares it with the other side and must not change it.
 *
 * 1. Interceptors of both sides, headers, trailers, errors with details, deadlines and signals work as over a wire.
 * 2. The principal and the request id of the caller's context values arrive; nothing else of them does.
 * 3. A stream is pulled: a handler makes its next message only when the caller asks for it.
 */
export function createDirectTransport(routes: (router: ConnectRouter) => void, options: InProcessOptions): Transport {
  const specs = collectSpecs(routes);
  const serverInterceptors = [...options.interceptors];
  const interceptors = [...(options.clientInterceptors ?? [])];

  function open(method: DescMethod, request: CallRequest, timeoutMs: number | undefined) {
    const spec = specs.get(method);
    if (spec === undefined) {
      const requestId = request.header.get(REQUEST_ID_HEADER) ?? "";
      throw toConnectError(new MeshError("NOT_SERVED", `${method.parent.typeName} is not served here`), requestId);
    }
    const context = createHandlerContext({
      service: method.parent,
      method,
      requestMethod: "POST",
      protocolName: "direct",
      url: request.url,
      requestSignal: request.signal,
      ...(timeoutMs !== undefined && timeoutMs > 0 && { timeoutMs }),
      ...(options.shutdownSignal !== undefined && { shutdownSignal: options.shutdownSignal }),
      requestHeader: request.header,
      contextValues: passOn(request.contextValues),
    });
    return { spec, context };
  }

  return {
    unary(method, signal, timeoutMs, header, input, contextValues) {
      return runUnaryCall({
        interceptors,
        ...(signal !== undefined && { signal }),
        ...(timeoutMs !== undefined && timeoutMs > 0 && { timeoutMs }),
        req: { stream: false, ...describe(method, header, contextValues), method, message: input },
        next: async (request) => {
          const { spec, context } = open(method, request, timeoutMs);
          if (spec.kind !== "unary") throw new Error(`${method.name} is served as ${spec.kind}`);
          try {
            const invoked = invokeUnaryImplementation(spec, context, request.message, serverInterceptors);
            const message = await raceSignal(request.signal, invoked as Promise<never>);
            const { responseHeader, responseTrailer } = context;
            const response = { header: responseHeader, trailer: responseTrailer, message };
            return { stream: false, service: method.parent, method, ...response };
          } catch (error) {
            context.abort(error);
            throw asTold(error);
          } finally {
            context.abort();
          }
        },
      });
    },

    stream(method, signal, timeoutMs, header, input, contextValues) {
      return runStreamingCall({
        interceptors,
        ...(signal !== undefined && { signal }),
        ...(timeoutMs !== undefined && timeoutMs > 0 && { timeoutMs }),
        req: { stream: true, ...describe(method, header, contextValues), method, message: input },
        next: async (request) => {
          const { spec, context } = open(method, request, timeoutMs);
          const invoke = transformInvokeImplementation(spec, context, serverInterceptors);
          const message = await pull(invoke(request.message as never), context, request.signal);
          const { responseHeader, responseTrailer } = context;
          const response = { header: responseHeader, trailer: responseTrailer, message: message as never };
          return { stream: true, service: method.parent, method, ...response };
        },
      });
    },
  };
}

type HeaderInit = ConstructorParameters<typeof Headers>[0];

type CallRequest = Pick<HandlerContext, "url" | "signal"> & {
  readonly header: Headers;
  readonly contextValues: ContextValues;
};
type Context = ReturnType<typeof createHandlerContext>;

function describe(method: DescMethod, header: HeaderInit | undefined, contextValues: ContextValues | undefined) {
  return {
    service: method.parent,
    requestMethod: "POST",
    url: `https://in-memory/${method.parent.typeName}/${method.name}`,
    header: new Headers(header),
    contextValues: contextValues ?? createContextValues(),
  };
}

function passOn(values: ContextValues): ContextValues {
  const principal = values.get(principalKey);
  const requestId = values.get(requestIdKey);
  const passed = createContextValues();
  if (principal !== undefined) passed.set(principalKey, principal);
  if (requestId !== "") passed.set(requestIdKey, requestId);
  return passed;
}

/** Waits for the first message, so that the handler's headers are there, and hands the others over as they are asked for. */
async function pull(output: AsyncIterable<unknown>, context: Context, signal: AbortSignal) {
  const iterator = output[Symbol.asyncIterator]();
  const end = (): void => {
    context.abort(signal.aborted ? getAbortSignalReason(signal) : undefined);
    // A handler that waits for something else than its signal ends when that wait does.
    iterator.return?.().catch(() => {});
  };
  signal.addEventListener("abort", end, { once: true });

  async function next(): Promise<IteratorResult<unknown>> {
    try {
      const result = await raceSignal(signal, iterator.next());
      if (result.done) context.abort();
      return result;
    } catch (error) {
      context.abort(error);
      throw asTold(error);
    }
  }

  // As over a wire, a handler that fails at once fails the first read, not the call.
  let first: Promise<IteratorResult<unknown>> | undefined = next();
  await first.catch(() => {});
  return {
    [Symbol.asyncIterator]: () => ({
      next() {
        const result = first ?? next();
        first = undefined;
        return result;
      },
    }),
  };
}

/** What a caller would read from a wire; without an `errorInterceptor` a bug's message stays hidden as well. */
function asTold(error: unknown): unknown {
  if (error instanceof ConnectError) return error;
  return new ConnectError("internal error", Code.Internal, undefined, undefined, error);
}

/** The promise, or the signal's reason when it aborts first. */
function raceSignal<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => {});
    return Promise.reject(getAbortSignalReason(signal));
  }
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(getAbortSignalReason(signal));
    signal.addEventListener("abort", onAbort, { once: true });
    promise.finally(() => signal.removeEventListener("abort", onAbort)).then(resolve, reject);
  });
}
