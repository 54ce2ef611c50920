import { setTimeout as delay } from "node:timers/promises";
import { startChild } from "../child.ts";
import { rounded } from "../statistics.ts";
import { openMesh } from "../subjects/mesh-subject.ts";

export interface RecoveryFigures {
  readonly lostLeases: number;
  readonly backlog: number;
  /** From the kill until the task is leased again. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Tasks of the backlog that still waited when the last lost one was leased again. */
  readonly stillWaiting: number;
}

const LOST = 50;
const SLOTS = 100;
/** The backlog takes longer than the recovery: a lost task must come before it, not after it. */
const HANDLER_MS = 100;
const POLL_MS = 10;
const TIMEOUT_MS = 60_000;

/** Kills a worker that holds leases, while another works off a backlog. */
export async function measureRecovery(backlog: number): Promise<RecoveryFigures> {
  const subject = await openMesh();
  const doomed = await startChild("processes/mesh-worker.ts");
  const { cluster, url } = subject;
  const submit = (count: number) => subject.submit!({ count, batch: 500, inFlight: 1, slots: SLOTS, prefetch: 0 });
  try {
    await doomed.call("start", { url, slots: LOST, prefetch: 0, handlerMs: -1 });
    await submit(LOST);
    await until(async () => (await count(cluster.query, "SELECT count(*)::int AS n FROM lease")) === LOST);
    const lost = await cluster.query<{ task_id: string; fence: string }>("SELECT task_id, fence FROM lease");
    const taskIds = lost.map((row) => row.task_id);
    await submit(backlog);
    await subject.worker.call("start", { url, slots: SLOTS, handlerMs: HANDLER_MS });
    await until(async () => (await count(cluster.query, "SELECT count(*)::int AS n FROM attempt")) > SLOTS);

    process.kill(doomed.pid, "SIGKILL");
    const killedAt = await clockMs(cluster.query);
    const newest = lost.reduce((most, { fence }) => Math.max(most, Number(fence)), 0);
    await until(async () => {
      const text = `
        SELECT count(DISTINCT task_id)::int AS n FROM (
          SELECT task_id, fence FROM lease WHERE task_id = ANY ($1)
          UNION ALL SELECT task_id, fence FROM attempt WHERE task_id = ANY ($1)
        ) AS again
        WHERE fence > $2`;
      return (await count(cluster.query, text, [taskIds, newest])) === LOST;
    });
    const stillWaiting = await count(cluster.query, "SELECT count(*)::int AS n FROM ready");
    const [again] = await cluster.query<{ first: number; last: number }>(
      `
      SELECT min(ms)::float8 AS first, max(ms)::float8 AS last FROM (
        SELECT date_part('epoch', leased_at) * 1000 AS ms FROM lease WHERE task_id = ANY ($1) AND fence > $2
        UNION ALL SELECT date_part('epoch', leased_at) * 1000 FROM attempt WHERE task_id = ANY ($1) AND fence > $2
      ) AS leased`,
      [taskIds, newest],
    );
    await subject.worker.call("stop");
    return {
      lostLeases: LOST,
      backlog,
      firstMs: rounded(again!.first - killedAt),
      lastMs: rounded(again!.last - killedAt),
      stillWaiting,
    };
  } finally {
    await doomed.stop();
    await subject.stop();
  }
}

type Query = <T>(text: string, params?: readonly unknown[]) => Promise<T[]>;

async function count(query: Query, text: string, params: readonly unknown[] = []): Promise<number> {
  return (await query<{ n: number }>(text, params))[0]!.n;
}

/** By the database's clock, which the leases' times are of. */
async function clockMs(query: Query): Promise<number> {
  const [row] = await query<{ ms: number }>("SELECT (date_part('epoch', clock_timestamp()) * 1000)::float8 AS ms");
  return row!.ms;
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + TIMEOUT_MS;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`nothing came within ${TIMEOUT_MS} ms`);
    await delay(POLL_MS);
  }
}
