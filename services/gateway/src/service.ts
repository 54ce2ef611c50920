import type { ConnectRouter, Transport } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { authorize } from "@runmesh/platform/authorization";
import { createHealthState, healthRoutes } from "@runmesh/platform/health";
import type { Log } from "@runmesh/platform/log";
import { assertSafeListen, createLoopbackGuard } from "@runmesh/platform/loopback-guard";
import { createServer, type Server } from "@runmesh/platform/one-port-server";
import { reflectionRoutes } from "@runmesh/platform/reflection";
import { errorInterceptor } from "@runmesh/platform/rpc-errors";
import { MemoryTokenBuckets } from "@runmesh/platform/token-buckets";
import type { Db } from "@runmesh/store/db";
import { auditRefusals } from "./audit-refusals.ts";
import { authenticate } from "./authenticate.ts";
import { forward } from "./forward.ts";
import { KeyAuthenticator } from "./key-authenticator.ts";
import { Keys } from "./keys.ts";
import { limitRequests } from "./limit-requests.ts";
import { limitWatches } from "./limit-watches.ts";
import { localAdmin } from "./local-admin.ts";
import { openMeshSecret } from "./mesh-secret.ts";
import { Quotas, type Rates } from "./quotas.ts";
import { createTenantService } from "./tenant-service.ts";

/** What the public API offers; reflection lists the same. */
export const PUBLIC_API = [
  WorkflowService,
  RunService,
  TaskService,
  LeaseService,
  ScheduleService,
  TenantService,
] as const;

export type Authentication = "local" | "keys";

/** What a tenant without a quota of its own may ask for. Who is local needs no protection from itself. */
const DEFAULT_RATES: Record<Authentication, Rates> = {
  local: { requestsPerSecond: undefined, startsPerSecond: undefined },
  keys: { requestsPerSecond: 5_000, startsPerSecond: 10_000 },
};

export interface GatewayOptions {
  readonly host: string;
  readonly port: number;
  readonly log: Log;
  readonly db: Db;
  /** `local`: callers without a key are the local admin, on loopback only. `keys`: every caller needs a key. */
  readonly authentication: Authentication;
  /** The mesh's secret, under which keys are hashed. Left out, the database keeps one. */
  readonly keySecret?: string | undefined;
  /** Mounts the scheduler's services where they are in this process, or forwards them (`forwardScheduler`). */
  readonly scheduler: (router: ConnectRouter) => void;
  /** The same for the workers' calls. */
  readonly leases: (router: ConnectRouter) => void;
}

/** Forwards the scheduler's services to another process. */
export const forwardScheduler = (transport: Transport) => (router: ConnectRouter) => {
  for (const service of [WorkflowService, RunService, TaskService, ScheduleService])
    forward(router, service, transport);
};

/** The public API on one port. Throws FORBIDDEN where others than this machine could reach the local admin. */
export function createGateway(options: GatewayOptions): Server {
  const { host, port, log, db, authentication, scheduler, leases } = options;
  assertSafeListen(host, authentication === "keys");
  const health = createHealthState();
  const secret = openMeshSecret(db, options.keySecret);
  const apiKeys = new KeyAuthenticator({ db, secret, log });
  // The authenticator of an identity provider's tokens goes between the two.
  const authenticators = authentication === "keys" ? [apiKeys] : [apiKeys, localAdmin];
  const quotas = new Quotas(db, DEFAULT_RATES[authentication]);
  const tenants = createTenantService({ db, keys: new Keys(db, secret), onMoved: (id) => apiKeys.forget(id) });
  const server = createServer({
    host,
    port,
    log,
    ...(authentication === "local" && { guard: createLoopbackGuard(() => server.address().port) }),
    // What they lease would wait for nobody.
    needingCaller: [LeaseService.method.acquireTasks, LeaseService.method.exchange],
    interceptors: [
      errorInterceptor({ log }),
      authenticate(authenticators),
      limitRequests({ quotas, buckets: new MemoryTokenBuckets() }),
      limitWatches(),
      auditRefusals({ db, log }),
      authorize(),
    ],
    routes(router) {
      scheduler(router);
      leases(router);
      router.service(TenantService, tenants);
      healthRoutes(health)(router);
      reflectionRoutes(PUBLIC_API)(router);
    },
  });
  return {
    ...server,
    name: "gateway",
    async start() {
      await server.start();
      for (const service of ["", ...PUBLIC_API.map((api) => api.typeName)]) health.set(service, "SERVING");
    },
    async stop() {
      for (const service of ["", ...PUBLIC_API.map((api) => api.typeName)]) health.set(service, "NOT_SERVING");
      await server.stop();
    },
  };
}
