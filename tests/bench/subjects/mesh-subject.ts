import { type Child, startChild } from "../child.ts";
import { type Cluster, openCluster } from "../cluster.ts";
import type { DrainLoad, Subject } from "./subject.ts";

export interface MeshSubject extends Subject {
  readonly server: Child;
  readonly worker: Child;
  readonly client: Child;
  readonly url: string;
}

/** RunMesh as it is deployed: server, worker and client are processes of their own. */
export async function openMesh(nodeFlags: readonly string[] = []): Promise<MeshSubject> {
  const cluster = await openCluster("mesh");
  const [server, worker, client] = await Promise.all([
    startChild("processes/mesh-server.ts", { nodeFlags }),
    startChild("processes/mesh-worker.ts", { nodeFlags }),
    startChild("processes/mesh-client.ts", { nodeFlags }),
  ]);
  const url = await server.call<string>("start", cluster.url);
  await client.call("start", url);
  return {
    name: "runmesh",
    cluster,
    server,
    worker,
    client,
    url,
    processes: {
      postgres: { postmaster: cluster.postmaster },
      server: { pid: server.pid },
      worker: { pid: worker.pid },
      client: { pid: client.pid },
    },
    submit: (load) => client.call("submit", load),
    beginDrain: ({ slots, prefetch }) => worker.call("start", { url, slots, prefetch }),
    async drain({ count }) {
      await worker.call("untilHandled", count);
      await cluster.untilEmpty(["ready", "lease", "outbox"]);
    },
    async check(load) {
      await worker.call("stop");
      await checkRuns(cluster, load);
    },
    beginWork: (slots) => worker.call("start", { url, slots }),
    endWork: () => worker.call("stop"),
    chains: (load) => client.call("chains", load),
    fanOut: (width) => client.call("fanOut", width),
    latency: (count) => client.call("latency", count),
    limits: (load) => client.call("limits", load),
    async stop() {
      // A worker that was never started, or is at rest, has nothing to stop.
      await worker.stop();
      await client.stop();
      await server.call("stop");
      await server.stop();
      await cluster.stop();
    },
  };
}

/** Server, worker and client in one process. */
export async function openWholeMesh(slots: number): Promise<Subject> {
  const cluster = await openCluster("mesh-whole");
  const whole = await startChild("processes/mesh-whole.ts");
  await whole.call("start", { databaseUrl: cluster.url, slots });
  return {
    name: "runmesh, one process",
    cluster,
    processes: { postgres: { postmaster: cluster.postmaster }, process: { pid: whole.pid } },
    fanOut: (width) => whole.call("fanOut", width),
    latency: (count) => whole.call("latency", count),
    async stop() {
      await whole.call("stop");
      await whole.stop();
      await cluster.stop();
    },
  };
}

/** Each of the newest runs SUCCEEDED, with one accepted result and a sequence without gaps. */
async function checkRuns(cluster: Cluster, { count }: DrainLoad): Promise<void> {
  const [row] = await cluster.query<{ good: number; attempts: number }>(
    `
    SELECT count(*) FILTER (WHERE newest.state = 4 AND newest.open_count = 0 AND newest.sequence = 3)::int AS good,
      sum((
        SELECT count(*) FROM attempt
        WHERE attempt.tenant_id = 1 AND attempt.task_id >> 20 = newest.id AND attempt.outcome = 1
          AND attempt.task_id = newest.id << 20
      ))::int AS attempts
    FROM (SELECT id, state, open_count, sequence FROM run ORDER BY id DESC LIMIT $1) AS newest`,
    [count],
  );
  if (row?.good === count && row.attempts === count) return;
  throw new Error(`of ${count} runs ${row?.good} ended as they should, with ${row?.attempts} accepted results`);
}
