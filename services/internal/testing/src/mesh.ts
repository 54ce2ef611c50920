import type { Client } from "@connectrpc/connect";
import { createServiceClient, createTransport, type MeshTransport } from "@runmesh/client/internal";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import type { Standalone } from "@runmesh/standalone/standalone";
import { startStandalone } from "@runmesh/standalone/standalone";
import type { Db } from "@runmesh/store/db";
import { useDatabase } from "./database.ts";
import { createGiven, type Given } from "./given.ts";
import { type Attach, attachWorker, type MeshWorker } from "./mesh-worker.ts";
import { createPost, type Post } from "./post.ts";

/** A whole mesh of the test's own, on a socket and a database of its own. */
export interface TestMesh extends AsyncDisposable {
  readonly url: string;
  readonly standalone: Standalone;
  /** The mesh's database, to look behind the contracts and to make time pass. */
  readonly db: Db;
  readonly databaseUrl: string;
  /** Clients that reject with `MeshError` and never repeat a call. */
  readonly runs: Client<typeof RunService>;
  readonly workflows: Client<typeof WorkflowService>;
  readonly tasks: Client<typeof TaskService>;
  readonly leases: Client<typeof LeaseService>;
  readonly schedules: Client<typeof ScheduleService>;
  readonly given: Given;
  /** Sends a body as it is, as a program without a schema would. */
  readonly post: Post;
  /** A worker driven by hand. Closed with the mesh. */
  worker(attach?: Attach): Promise<MeshWorker>;
  /** The run once it has ended. */
  ended(runId: bigint): Promise<Run>;
}

export interface MeshOptions {
  /** Default silent. */
  readonly logLevel?: "debug" | "warn" | "error";
}

/** How long a run may take; a test that waits longer waits for nothing. */
const ENDED_MS = 30_000;
const CALLS = { timeoutMs: 30_000, attempts: 1 };

/** `await using mesh = await startMesh()`. Its end asserts that the doctor finds nothing (G8). */
export async function startMesh(options: MeshOptions = {}): Promise<TestMesh> {
  const database = await useDatabase({ size: 4 });
  const standalone = await startStandalone({
    port: 0,
    databaseUrl: database.url,
    ...(database.pgbouncerUrl !== undefined && { pgbouncerUrl: database.pgbouncerUrl }),
    logLevel: options.logLevel ?? "silent",
  });
  const transport: MeshTransport = createTransport({ url: standalone.url });
  const client = <S extends Parameters<typeof createServiceClient>[0]>(service: S) =>
    createServiceClient(service, transport, CALLS);
  const [runs, workflows] = [client(RunService), client(WorkflowService)];
  const [tasks, leases] = [client(TaskService), client(LeaseService)];
  const workers: MeshWorker[] = [];

  async function ended(runId: bigint): Promise<Run> {
    for await (const _ of runs.watchRun({ runId }, { signal: AbortSignal.timeout(ENDED_MS) }));
    return (await runs.getRun({ runId })).run!;
  }

  async function stop(): Promise<void> {
    for (const worker of workers) worker.close();
    const findings = await standalone.doctor();
    transport.close();
    await standalone.stop();
    await database.close();
    if (findings.length > 0) throw new Error(`the doctor found ${JSON.stringify(findings, null, 2)}`);
  }

  return {
    url: standalone.url,
    standalone,
    db: database.db,
    databaseUrl: database.url,
    runs,
    workflows,
    tasks,
    leases,
    schedules: client(ScheduleService),
    given: createGiven({ runs, workflows }),
    post: createPost(standalone.url),
    async worker(attach = {}) {
      const worker = await attachWorker(leases, attach);
      workers.push(worker);
      return worker;
    },
    ended,
    [Symbol.asyncDispose]: stop,
  };
}
