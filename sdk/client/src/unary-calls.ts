import type { RequestOptions } from "node:https";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import {
  appendHeaders,
  Code,
  ConnectError,
  createContextValues,
  type Interceptor,
  type Transport,
  type UnaryRequest,
  type UnaryResponse,
} from "@connectrpc/connect";
import type { Compression } from "@connectrpc/connect/protocol";
import {
  errorFromJsonBytes,
  requestHeader,
  trailerDemux,
  validateResponseWithCompression,
} from "@connectrpc/connect/protocol-connect";
import { endOf, post, type Reply, watch } from "./http-post.ts";

export interface UnaryCallsOptions {
  readonly url: URL;
  /** Where connections come from, and what else `node:http` is told of each. */
  readonly to: RequestOptions;
  /** Sent with each call. */
  readonly authorization?: string | undefined;
  /** Encodings in which an answer may come. */
  readonly acceptCompression: readonly Compression[];
  /** Outermost first. */
  readonly interceptors?: readonly Interceptor[];
}

const ENDED = new DOMException("This operation was aborted", "AbortError");

/**
 * Unary calls of the Connect protocol in its binary form, over HTTP/1.1. The library's own transport spends three times
 * the CPU on one: async iterables around a single chunk, abort controllers and DOMExceptions for calls that nobody
 * aborts. A call with neither headers of its own nor interceptors does without `Headers` as well.
 */
export function createUnaryCalls(options: UnaryCallsOptions): Transport["unary"] {
  const { url, to, authorization, acceptCompression } = options;
  const interceptors = (options.interceptors ?? []).toReversed();
  const prefix = url.pathname.replace(/\/$/, "");
  const acceptEncoding = acceptCompression.map(({ name }) => name).join(",");
  const always = ["host", url.host, ...flatten(addOwn(requestHeader("unary", true, undefined, undefined, true)))];

  function addOwn(header: Headers): Headers {
    if (authorization !== undefined) header.set("authorization", authorization);
    if (acceptEncoding !== "") header.set("accept-encoding", acceptEncoding);
    return header;
  }

  async function send<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    call: {
      readonly headers: string[];
      readonly signal?: AbortSignal | undefined;
      readonly timeoutMs?: number | undefined;
    },
  ): Promise<UnaryResponse<I, O>> {
    const body = write(method.input, message);
    call.headers.push("content-length", String(body.byteLength));
    const { signal, timeoutMs, headers } = call;
    const path = `${prefix}/${method.parent.typeName}/${method.name}`;
    return readReply(method, await post({ to, path, headers, body, signal, timeoutMs }), acceptCompression);
  }

  /** As the library does it, for calls that have something to intercept. */
  async function intercept<I extends DescMessage, O extends DescMessage>(
    request: Omit<UnaryRequest<I, O>, "signal">,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
  ): Promise<UnaryResponse<I, O>> {
    const own = new AbortController();
    if (signal?.aborted) own.abort(endOf(signal));
    const unwatch = watch(signal, timeoutMs, (error) => own.abort(error));
    let next = (intercepted: UnaryRequest<I, O>) => {
      const headers = ["host", url.host, ...flatten(intercepted.header)];
      return send(intercepted.method, intercepted.message, { headers, signal: intercepted.signal });
    };
    for (const interceptor of interceptors) next = interceptor(next as never) as never;
    try {
      return await next({ ...request, signal: own.signal });
    } catch (error) {
      throw own.signal.aborted ? endOf(own.signal) : ConnectError.from(error);
    } finally {
      unwatch();
      own.abort(ENDED);
    }
  }

  return async (method, signal, timeoutMs, header, input, contextValues) => {
    const limitMs = timeoutMs !== undefined && timeoutMs > 0 ? timeoutMs : undefined;
    const message = create(method.input, input);
    if (interceptors.length === 0 && header === undefined) {
      const headers = [...always];
      if (limitMs !== undefined) headers.push("connect-timeout-ms", String(limitMs));
      return send(method, message, { headers, signal, timeoutMs: limitMs });
    }
    const request = {
      stream: false as const,
      service: method.parent,
      method,
      requestMethod: "POST",
      url: `${url.origin}${prefix}/${method.parent.typeName}/${method.name}`,
      header: addOwn(requestHeader("unary", true, limitMs, header, true)),
      contextValues: contextValues ?? createContextValues(),
      message,
    };
    return intercept(request, signal, limitMs);
  };
}

async function readReply<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  reply: Reply,
  compressions: readonly Compression[],
): Promise<UnaryResponse<I, O>> {
  const { status, headers } = reply;
  const isPlain =
    status === 200 && headers["content-type"] === "application/proto" && headers["content-encoding"] === undefined;
  const bytes = isPlain ? reply.body : await readOther(reply, compressions);
  let metadata: ReturnType<typeof trailerDemux> | undefined;
  const read = () => {
    metadata ??= trailerDemux(toHeaders(reply));
    return metadata;
  };
  return {
    stream: false,
    service: method.parent,
    method,
    message: parse(method.output, bytes),
    // Nearly nobody asks for them.
    get header() {
      return read()[0];
    },
    get trailer() {
      return read()[1];
    },
  };
}

/** The message of a compressed answer. Throws the error that another tells. */
async function readOther({ body, ...reply }: Reply, compressions: readonly Compression[]): Promise<Uint8Array> {
  const all = toHeaders(reply);
  const { compression, isUnaryError, unaryError } = validateResponseWithCompression(
    "unary",
    [...compressions],
    true,
    reply.status,
    all,
  );
  const bytes = compression ? await compression.decompress(body, MAX_PLAIN_BYTES) : body;
  if (isUnaryError) throw errorFromJsonBytes(bytes, appendHeaders(...trailerDemux(all)), unaryError);
  return bytes;
}

/** Of an answer that was compressed. */
const MAX_PLAIN_BYTES = 256 * 1024 * 1024;

function toHeaders({ headers }: Pick<Reply, "headers">): Headers {
  const all = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    for (const one of [value ?? []].flat()) all.append(name, one);
  }
  return all;
}

function flatten(header: Headers): string[] {
  return [...header].filter(([name]) => name !== "host" && name !== "content-length").flat();
}

function write<D extends DescMessage>(desc: D, message: MessageShape<D>): Uint8Array {
  try {
    return toBinary(desc, message);
  } catch (cause) {
    throw unreadable("serialize", cause);
  }
}

function parse<D extends DescMessage>(desc: D, bytes: Uint8Array): MessageShape<D> {
  try {
    return fromBinary(desc, bytes);
  } catch (cause) {
    throw unreadable("parse", cause);
  }
}

function unreadable(what: string, cause: unknown): ConnectError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new ConnectError(`${what} binary: ${why}`, Code.Internal);
}
