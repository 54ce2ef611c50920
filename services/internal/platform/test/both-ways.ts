import { toJsonString } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, type HandlerContext, type Interceptor } from "@connectrpc/connect";
import { ErrorDetailSchema, Reason } from "@runmesh/contracts/error/v1/error_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { authorize } from "../src/authorization.ts";
import { silentLog } from "../src/log.ts";
import { createServer, type Server } from "../src/one-port-server.ts";
import { originKey } from "../src/origin.ts";
import { getPrincipal, principalKey } from "../src/principal.ts";
import { requestIdKey } from "../src/request-id.ts";
import { errorInterceptor } from "../src/rpc-errors.ts";

/** Who serves plain calls. */
export const WAYS = ["our own", "the library's"] as const;
export type Way = (typeof WAYS)[number];

export type GetRun = (request: { runId: bigint }, context: HandlerContext) => object | Promise<object>;

/** What the last call's handler saw, and what `audit` did. */
export interface Seen {
  context?: object;
  refused?: unknown;
}

/** A server whose `GetRun` is given, with interceptors like the gateway's and some that do what those do not. */
export function serve(way: Way, getRun: GetRun, seen: Seen = {}): Server {
  return createServer({
    host: "127.0.0.1",
    port: 0,
    log: silentLog,
    drainTimeoutMs: 5_000,
    needingCaller: [RunService.method.getRun],
    interceptors: [throwBeside, errorInterceptor({ log: silentLog }), authenticate, audit(seen), replace, authorize()],
    routes(router: ConnectRouter) {
      const implementation = {
        getRun(request: { runId: bigint }, context: HandlerContext) {
          seen.context = describe(context);
          return getRun(request, context);
        },
        startRun: () => ({ runId: 7n, created: true }),
      };
      // A service with options of its own is left to the library.
      router.service(RunService, implementation, way === "our own" ? undefined : {});
    },
  });
}

function describe(context: HandlerContext): object {
  const { service, method, requestMethod, protocolName, values, requestHeader } = context;
  return {
    method: `${service.typeName}/${method.name}`,
    requestMethod,
    protocolName,
    url: context.url.replace(/:\d+/, ":port"),
    headers: [...requestHeader].filter(([name]) => name !== "host"),
    requestId: values.get(requestIdKey),
    origin: values.get(originKey),
    tenant: getPrincipal({ values }).tenant,
    hasTime: (context.timeoutMs() ?? 0) > 0,
  };
}

const authenticate: Interceptor = (next) => (request) => {
  const role = request.header.get("authorization")?.replace("Bearer ", "");
  if (role === undefined) throw new MeshError("UNAUTHENTICATED", "the call carries no credential");
  request.contextValues.set(principalKey, { tenantId: 1, tenant: "default", name: role, roles: [role as "viewer"] });
  request.header.delete("authorization");
  return next(request);
};

const audit =
  (seen: Seen): Interceptor =>
  (next) =>
  async (request) => {
    try {
      return await next(request);
    } catch (error) {
      if (!request.stream) {
        seen.refused = [request.method.name, toJsonString(request.method.input, request.message), String(error)];
      }
      throw error;
    }
  };

/** Puts others in place of what an interceptor may replace. */
const replace: Interceptor = (next) => async (request) => {
  const what = request.header.get("x-replace");
  if (request.stream || what === null) return next(request);
  const signal = AbortSignal.abort(new MeshError("CANCELLED", "replaced"));
  const response = await next(
    what === "signal" ? { ...request, signal } : { ...request, header: new Headers({ "x-replaced": "yes" }) },
  );
  const header = new Headers(response.header);
  header.set("x-replaced", "yes");
  return { ...response, header, trailer: new Headers({ "x-after": "replaced" }) } as typeof response;
};

const throwBeside: Interceptor = (next) => async (request) => {
  if (request.header.get("x-beside") === "bug") throw new TypeError("secret");
  if (request.header.get("x-beside") === "error") throw new ConnectError("beside", Code.NotFound, { "x-meta": "m" });
  return next(request);
};

/** Run ids that make the handler do something. */
export const BEHAVIOURS: Readonly<Record<string, (context: HandlerContext) => object>> = {
  "1"(context) {
    context.responseHeader.set("x-one", "1");
    for (const value of ["a", "b"]) context.responseHeader.append("x-many", value);
    for (const value of ["a=1", "b=2", "c=3"]) context.responseHeader.append("set-cookie", value);
    context.responseTrailer.set("x-after", "2");
    return { run: { id: 1n, workflow: "größer" } };
  },
  "2"() {
    const violations = [{ field: "run_id", reason: "INVALID_FIELD" as const, description: "wrong" }];
    throw new MeshError("INVALID_FIELD", "wrong", { violations, retryAfterMs: 1_500 });
  },
  "3"(context) {
    context.responseHeader.set("x-before", "kept");
    context.responseTrailer.set("x-after", "kept");
    const metadata = { "x-meta": "m", "content-type": "text/plain", date: "never" };
    const value = { reason: Reason.OVERLOADED, requestId: "another", advice: "wait" };
    throw new ConnectError("full", Code.ResourceExhausted, metadata, [{ desc: ErrorDetailSchema, value }]);
  },
  "4"() {
    throw new Error("password=hunter2");
  },
  "5"() {
    throw new ConnectError("no detail", Code.Aborted, { "x-meta": "m" });
  },
  // No int64: it cannot be written.
  "6": () => ({ run: { id: "nonsense" } }),
  "7"() {
    const error = new ConnectError("from afar", Code.NotFound, { "x-meta": "m" });
    error.isWireError = true;
    throw error;
  },
  "8"(context) {
    context.signal.throwIfAborted();
    return { run: { id: 8n } };
  },
};
