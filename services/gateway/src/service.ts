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
import { createLoopbackGuard } from "@runmesh/platform/loopback-guard";
import { createServer, type Server } from "@runmesh/platform/one-port-server";
import { reflectionRoutes } from "@runmesh/platform/reflection";
import { errorInterceptor } from "@runmesh/platform/rpc-errors";
import { forward } from "./forward.ts";
import { signInLocalAdmin } from "./local-admin.ts";
import { tenantService } from "./tenant-service.ts";

/** What the public API offers; reflection lists the same. */
export const PUBLIC_API = [
  WorkflowService,
  RunService,
  TaskService,
  LeaseService,
  ScheduleService,
  TenantService,
] as const;

export interface GatewayOptions {
  readonly host: string;
  readonly port: number;
  readonly log: Log;
  readonly scheduler: Transport;
  /** Mounts the workers' calls directly, or forwards them. */
  readonly leases: (router: ConnectRouter) => void;
}

/** The public API on one port. Until keys are there it serves the local admin only, on loopback. */
export function createGateway({ host, port, log, scheduler, leases }: GatewayOptions): Server {
  const health = createHealthState();
  const server = createServer({
    host,
    port,
    log,
    guard: createLoopbackGuard(() => server.address().port),
    interceptors: [errorInterceptor({ log }), signInLocalAdmin, authorize()],
    routes(router) {
      for (const service of [WorkflowService, RunService, TaskService]) forward(router, service, scheduler);
      leases(router);
      router.service(ScheduleService, {});
      router.service(TenantService, tenantService);
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
