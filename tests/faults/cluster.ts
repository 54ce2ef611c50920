import { randomInt } from "node:crypto";
import { createServiceClient, createTransport } from "@runmesh/client/internal";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { startStandalone } from "@runmesh/standalone/standalone";
import type { TestMesh } from "@runmesh/testing/mesh";
import { type Attach, attachWorker, type MeshWorker } from "@runmesh/testing/mesh-worker";

const CALLS = { timeoutMs: 60_000, attempts: 1 };

/** One more of every service on a mesh's database, with pools, caches and hints of its own. */
export type Replica = AsyncDisposable & ReturnType<typeof connectTo>;

/** Clients of one connection. */
export function connectTo(url: string) {
  const transport = createTransport({ url });
  const leases = createServiceClient(LeaseService, transport, CALLS);
  return {
    url,
    runs: createServiceClient(RunService, transport, CALLS),
    tasks: createServiceClient(TaskService, transport, CALLS),
    workflows: createServiceClient(WorkflowService, transport, CALLS),
    leases,
    worker: (attach: Attach = {}): Promise<MeshWorker> => attachWorker(leases, attach),
    close: () => transport.close(),
  };
}

export async function startReplicas(mesh: TestMesh, count: number): Promise<Replica[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const standalone = await startStandalone({ port: 0, databaseUrl: mesh.databaseUrl, logLevel: "silent" });
      const clients = connectTo(standalone.url);
      return {
        ...clients,
        async [Symbol.asyncDispose]() {
          clients.close();
          await standalone.stop();
        },
      };
    }),
  );
}

/** A random wait of 0 to `maxMs`; often none at all. */
export async function stumble(maxMs: number): Promise<void> {
  const ms = randomInt(maxMs * 2) - maxMs;
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
}
