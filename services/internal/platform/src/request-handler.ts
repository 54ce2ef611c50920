import type { DescMethod } from "@bufbuild/protobuf";
import {
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextValues,
  type Interceptor,
} from "@connectrpc/connect";
import { type Compression, type UniversalHandler, validateReadWriteMaxBytes } from "@connectrpc/connect/protocol";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { MeshError } from "@runmesh/domain/errors";
import { guardBody } from "./body-guard.ts";
import { BodyTime, type Incoming } from "./body-time.ts";
import { tellOfLeaving } from "./gone-caller.ts";
import { tellOfNeed } from "./half-close.ts";
import type { Log } from "./log.ts";
import { collectSpecs } from "./method-specs.ts";
import { addMissingDetail } from "./missing-detail.ts";
import type { NodeRequest, NodeResponse, RequestGuard } from "./one-port-server.ts";
import { originKey } from "./origin.ts";
import { refuse } from "./refusal.ts";
import { REQUEST_ID_HEADER, readRequestId, requestIdKey } from "./request-id.ts";
import { MAX_RECURSION, MAX_REQUEST_BYTES } from "./rpc-limits.ts";
import { createUnaryCalls } from "./unary-calls.ts";
import { unknownPath, welcome } from "./unknown-path.ts";

export interface RequestHandlerOptions {
  readonly routes: (router: ConnectRouter) => void;
  readonly interceptors: readonly Interceptor[];
  readonly guard?: RequestGuard;
  readonly fallback?: (request: NodeRequest, response: NodeResponse) => void;
  readonly log: Log;
  readonly acceptCompression?: readonly Compression[];
  readonly needingCaller?: readonly DescMethod[];
  readonly shutdownSignal: AbortSignal;
}

/** Room above the limit, so that our own check, which answers with a detail, is the one that refuses. */
const SLACK_BYTES = 1024;

/** Serves the routes over Connect, gRPC and gRPC-Web; every refusal carries an ErrorDetail. */
export function createRequestHandler(
  options: RequestHandlerOptions,
): (request: NodeRequest, response: NodeResponse) => void {
  const { guard, fallback, log } = options;
  const needingCaller = new Set(options.needingCaller);
  const compressions = options.acceptCompression ?? [];
  const limits = validateReadWriteMaxBytes(MAX_REQUEST_BYTES + SLACK_BYTES, undefined, undefined);
  const shared = {
    interceptors: [...options.interceptors],
    jsonOptions: { ignoreUnknownFields: false, recursionLimit: MAX_RECURSION },
    binaryOptions: { recursionLimit: MAX_RECURSION },
    shutdownSignal: options.shutdownSignal,
  };
  const router = createConnectRouter({ ...shared, ...limits, acceptCompression: [...compressions] });
  const specs = collectSpecs(options.routes, router);
  const negotiatesCompression = compressions.length > 0;
  const unaryCalls = createUnaryCalls({ ...shared, specs, limits, negotiatesCompression, log });
  const handlers = new Map<string, UniversalHandler>(router.handlers.map((handler) => [handler.requestPath, handler]));

  async function call(handler: UniversalHandler, incoming: Incoming, requestId: string) {
    const { request, response } = incoming;
    const contextValues = createContextValues()
      .set(requestIdKey, requestId)
      .set(originKey, request.socket?.remoteAddress ?? "");
    const universal = universalRequestFromNodeRequest(request, response, undefined, contextValues);
    const guarded = await guardBody(universal, incoming, handler.method, compressions, requestId);
    const answer = await addMissingDetail(await handler(guarded.request), guarded, requestId, log);
    const told = answer.body && { body: tellOfLeaving(answer.body, response) };
    await universalResponseToNodeResponse({ ...answer, ...told }, response);
  }

  return (request, response) => {
    const incoming: Incoming = { request, response, bodyTime: new BodyTime(request, response) };
    const requestId = readRequestId(request.headers[REQUEST_ID_HEADER] as string | undefined);
    const refused = guard?.(request);
    if (refused !== undefined) {
      refuse(request, response, refused, requestId);
      return;
    }
    const url = request.url ?? "";
    const query = url.indexOf("?");
    const path = query < 0 ? url : url.slice(0, query);
    const handler = handlers.get(path);
    if (handler === undefined) {
      if (fallback !== undefined) fallback(request, response);
      else if (!welcome(request, response, path)) {
        refuse(request, response, unknownPath(path, handlers.keys()), requestId);
      }
      return;
    }
    tellOfNeed(request, handler.method.methodKind !== "unary" || needingCaller.has(handler.method));
    const answered = unaryCalls.serve(path, incoming, requestId) ?? call(handler, incoming, requestId);
    answered.catch((error: unknown) => {
      const { service, method } = handler;
      // The caller is gone, or the answer is half sent: nothing is left to tell it.
      log.debug(
        { requestId, method: `${service.typeName}/${method.name}`, error: ConnectError.from(error) },
        "an answer was not sent",
      );
      if (!response.headersSent) refuse(request, response, new MeshError("INTERNAL", "internal error"), requestId);
      else response.destroy();
    });
  };
}
