/**
 * Serves plain calls, which nearly all calls are: a unary Connect POST, neither compressed nor with anything else that
 * is out of the ordinary. What the library does with such a call costs several times the CPU of the call itself: async
 * iterables around one chunk, abort controllers and DOMExceptions that nobody looks at, a URL parsed and written again.
 *
 * 1. A plain call is answered as the library would answer it, byte for byte; `unary-calls.test.ts` compares the two.
 * 2. The same interceptors and the same implementation get a request and a context of the library's shape.
 * 3. Whatever is not plain is left to the library, a call that it would refuse for its head included.
 */
import type { DescMessage, DescMethodUnary } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ContextValues,
  createContextValues,
  type HandlerContext,
  type Interceptor,
  type MethodImplSpec,
  type UnaryRequest,
  type UnaryResponse,
} from "@connectrpc/connect";
import {
  createMethodSerializationLookup,
  createMethodUrl,
  type MethodSerializationLookup,
  mergeNonProtocolHeaders,
} from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorToJsonBytes, trailerMux } from "@connectrpc/connect/protocol-connect";
import { checkMessageOf } from "./body-guard.ts";
import type { Incoming } from "./body-time.ts";
import { type CallSignal, CallSignals, isClosed } from "./call-signal.ts";
import { checkJsonText } from "./json-guard.ts";
import type { Log } from "./log.ts";
import type { MethodSpecs } from "./method-specs.ts";
import { explain } from "./missing-detail.ts";
import type { NodeResponse } from "./one-port-server.ts";
import { originKey } from "./origin.ts";
import { type PlainHead, readHeaders, readPlainHead } from "./plain-request.ts";
import { readBody } from "./read-body.ts";
import { requestIdKey } from "./request-id.ts";
import { toConnectError } from "./rpc-errors.ts";
import { MAX_REQUEST_BYTES } from "./rpc-limits.ts";

type UnarySpec = Extract<MethodImplSpec, { kind: "unary" }>;
type SerializationOptions = Parameters<typeof createMethodSerializationLookup>;

export interface UnaryCallsOptions {
  readonly specs: MethodSpecs;
  /** Outermost first. */
  readonly interceptors: readonly Interceptor[];
  readonly jsonOptions: SerializationOptions[2];
  readonly binaryOptions: SerializationOptions[1];
  readonly limits: SerializationOptions[3];
  /** Whether an answer may have to be compressed, which is the library's to do. */
  readonly negotiatesCompression: boolean;
  readonly shutdownSignal: AbortSignal;
  readonly log: Log;
}

export interface UnaryCalls {
  /** Answers the call at that path; undefined where it is none of a method served here, or not a plain one. */
  serve(path: string, incoming: Incoming, requestId: string): Promise<void> | undefined;
}

interface Method {
  readonly spec: UnarySpec;
  readonly serialization: MethodSerializationLookup<DescMessage, DescMessage>;
}

interface Call {
  readonly head: PlainHead;
  readonly signal: CallSignal;
  readonly header: Headers;
  readonly values: ContextValues;
  readonly responseHeader: Headers;
  readonly responseTrailer: Headers;
}

export function createUnaryCalls(options: UnaryCallsOptions): UnaryCalls {
  const { log, jsonOptions } = options;
  const signals = new CallSignals(options.shutdownSignal);
  const interceptors = options.interceptors.toReversed();
  const methods = new Map<string, Method>();
  for (const spec of options.specs.values()) {
    if (spec.kind !== "unary") continue;
    const { method } = spec;
    const serialization = createMethodSerializationLookup(method, options.binaryOptions, jsonOptions, options.limits);
    methods.set(createMethodUrl("/", method), { spec, serialization });
  }

  async function answer(method: Method, head: PlainHead, incoming: Incoming, requestId: string) {
    const { request, response } = incoming;
    const call: Call = {
      head,
      signal: signals.create(response, head.timeoutMs),
      header: readHeaders(request),
      values: createContextValues()
        .set(requestIdKey, requestId)
        .set(originKey, request.socket?.remoteAddress ?? ""),
      responseHeader: new Headers({ "content-type": head.isJson ? "application/json" : "application/proto" }),
      responseTrailer: new Headers(),
    };
    let status = 200;
    let body: Uint8Array;
    let bytes: Uint8Array | undefined;
    try {
      bytes = await read(method, head, incoming, requestId);
      const input = method.serialization.getI(!head.isJson).parse(bytes);
      body = method.serialization.getO(!head.isJson).serialize(await invoke(method.spec, call, input, interceptors));
    } catch (thrown) {
      call.signal.end(thrown);
      const error = writeError(call.responseHeader, thrown, (untold) =>
        explain(untold, () => bytes && checkMessageOf(method.spec.method, head.isJson, bytes), requestId, log),
      );
      status = codeToHttpStatus(error.code);
      body = errorToJsonBytes(error, jsonOptions);
    }
    call.signal.end();
    if (isClosed(response)) log.debug({ requestId, url: head.url }, "an answer was not sent");
    else send(response, status, call, body);
  }

  return {
    serve(path, incoming, requestId) {
      const method = methods.get(path);
      if (method === undefined) return undefined;
      const head = readPlainHead(incoming.request, options.negotiatesCompression);
      return head && answer(method, head, incoming, requestId);
    },
  };
}

async function read({ spec }: Method, head: PlainHead, incoming: Incoming, requestId: string): Promise<Uint8Array> {
  try {
    const bytes = await readBody(incoming.request, MAX_REQUEST_BYTES, incoming.bodyTime);
    if (head.isJson) checkJsonText(spec.method.input, bytes);
    return bytes;
  } catch (error) {
    throw toConnectError(error, requestId);
  }
}

/** The implementation's answer, through the interceptors; what they make of the headers is in the call afterwards. */
async function invoke(
  spec: UnarySpec,
  call: Call,
  message: UnaryRequest["message"],
  interceptors: readonly Interceptor[],
): Promise<UnaryResponse["message"]> {
  const { method } = spec;
  let next = async (request: UnaryRequest): Promise<UnaryResponse> => ({
    stream: false,
    service: method.parent,
    method,
    header: call.responseHeader,
    trailer: call.responseTrailer,
    message: create(method.output, await spec.impl(request.message, contextOf(method, call, request))),
  });
  for (const interceptor of interceptors) next = interceptor(next as never) as never;
  const response = await next({
    stream: false,
    service: method.parent,
    method,
    requestMethod: "POST",
    url: call.head.url,
    get signal() {
      return call.signal.get();
    },
    header: call.header,
    contextValues: call.values,
    message,
  });
  replace(call.responseHeader, response.header);
  replace(call.responseTrailer, response.trailer);
  return response.message;
}

function contextOf(method: DescMethodUnary, call: Call, request: UnaryRequest): HandlerContext {
  return {
    service: request.service,
    method,
    protocolName: "connect",
    requestMethod: "POST",
    url: call.head.url,
    /** An interceptor may have put another in its place. */
    get signal() {
      return request.signal;
    },
    timeoutMs: () => call.signal.restMs(),
    requestHeader: request.header,
    responseHeader: call.responseHeader,
    responseTrailer: call.responseTrailer,
    values: request.contextValues,
  };
}

function replace(own: Headers, given: Headers): void {
  if (given === own) return;
  for (const name of [...own.keys()]) own.delete(name);
  for (const [name, value] of given) own.set(name, value);
}

/** What the caller is told, and the headers that go with it. */
function writeError(header: Headers, thrown: unknown, tell: (error: ConnectError) => ConnectError): ConnectError {
  const error =
    thrown instanceof ConnectError
      ? thrown
      : new ConnectError("internal error", Code.Internal, undefined, undefined, thrown);
  header.set("content-type", "application/json");
  // Of an error that came over another wire, only what it says goes on.
  if (!error.isWireError) mergeNonProtocolHeaders(header, error.metadata);
  if (error.details.length > 0) return error;
  const told = tell(error);
  for (const [name, value] of told.metadata) header.set(name, value);
  return told;
}

function send(response: NodeResponse, status: number, call: Call, body: Uint8Array): void {
  let header = call.responseHeader;
  if (!call.responseTrailer.keys().next().done) header = trailerMux(header, call.responseTrailer);
  header.set("content-length", String(body.byteLength));
  const fields: Record<string, string | string[]> = {};
  for (const [name, value] of header) {
    const before = fields[name];
    // Only set-cookie comes more than once.
    fields[name] = before === undefined ? value : [before, value].flat();
  }
  (response as import("node:http").ServerResponse).writeHead(status, fields).end(body);
}
