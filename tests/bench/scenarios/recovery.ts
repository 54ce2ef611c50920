import { setTimeout as delay } from "node:timers/promises";
import { askDoctor } from "../ask-doctor.ts";
import { startChild } from "../child.ts";
import type { Cluster } from "../cluster.ts";
import { openMesh } from "../subjects/mesh-subject.ts";

export interface RecoveryFigures extends Recovery {
  readonly lostLeases: number;
  readonly doctor: readonly string[];
}

/** Times are from the kill, by the database's clock. */
interface Recovery {
  /** When the last of the lost leases had been ended, after the grace. */
  readonly returnedMs: number;
  /** Tasks of the backlog, of the same priority and older, that waited when the first lost one came back. */
  readonly inFront: number;
  /** When the first and the last lost task were leased again. */
  readonly againFirstMs: number;
  readonly againLastMs: number;
  /** When the handler of the last one began again; before it ran what its worker had prefetched. */
  readonly startedLastMs: number;
  /** Tasks of the backlog that were leased between the return of the lost ones and the last one's new lease. */
  readonly overtookBy: number;
  /** When the last task of the backlog was leased. */
  readonly tailMs: number;
}

const LOST = 50;
const SLOTS = 100;
const HANDLER_MS = 200;
const PER_SECOND = (SLOTS * 1_000) / HANDLER_MS;
/** Until the lost leases are back; what is worked off meanwhile is added to the backlog, so that it outlasts it. */
const GRACE_SECONDS = 5;
const POLL_MS = 10;
const TIMEOUT_MS = 60_000;

/** Kills a worker that holds leases, while another works off a backlog that is longer than the grace. */
export async function measureRecovery(backlog: number): Promise<RecoveryFigures> {
  const subject = await openMesh();
  const doomed = await startChild("processes/mesh-worker.ts");
  const { cluster, url } = subject;
  const submit = (count: number) => subject.submit!({ count, batch: 500, inFlight: 1, slots: SLOTS, prefetch: 0 });
  try {
    await doomed.call("start", { url, slots: LOST, prefetch: 0, handlerMs: -1 });
    await submit(LOST);
    await until(async () => (await count(cluster, "lease")) === LOST);
    const lost = await cluster.query<LostLease>("SELECT task_id, fence FROM lease");
    const all = backlog + PER_SECOND * GRACE_SECONDS;
    await submit(all);
    await subject.worker.call("start", { url, slots: SLOTS, handlerMs: HANDLER_MS });
    await until(async () => (await count(cluster, "attempt")) > SLOTS);

    process.kill(doomed.pid, "SIGKILL");
    const killedAt = await clockMs(cluster);
    await cluster.untilEmpty(["ready", "lease"], TIMEOUT_MS + (3_000 * all) / PER_SECOND);
    await subject.worker.call("stop");
    return { lostLeases: LOST, ...(await readRecovery(cluster, lost, killedAt)), doctor: await askDoctor(subject) };
  } finally {
    await doomed.stop();
    await subject.stop();
  }
}

interface LostLease {
  readonly task_id: string;
  readonly fence: string;
}

type Row = { readonly [Column in keyof Recovery]: number };

/** All from the attempts, once everything has ended: nothing is missed between two looks. */
async function readRecovery({ query }: Cluster, lost: readonly LostLease[], killedAt: number): Promise<Recovery> {
  const [row] = await query<Row>(
    `
    WITH lost AS (
      SELECT min(ended_at) AS first, max(ended_at) AS last FROM attempt
      JOIN unnest($1::bigint[], $2::bigint[]) AS named (task_id, fence) USING (task_id, fence)
    ), again AS (
      SELECT min(leased_at) AS first, max(leased_at) AS last, max(started_at) AS last_started FROM attempt
      JOIN unnest($1::bigint[], $2::bigint[]) AS named (task_id, fence)
        ON attempt.task_id = named.task_id AND attempt.fence > named.fence
    ), backlog AS (
      SELECT task_id, max(leased_at) AS leased_at FROM attempt WHERE task_id <> ALL ($1) GROUP BY task_id
    )
    SELECT ${millis("max(lost.last)")} AS "returnedMs",
      count(*) FILTER (WHERE leased_at > lost.first)::int AS "inFront",
      ${millis("max(again.first)")} AS "againFirstMs",
      ${millis("max(again.last)")} AS "againLastMs",
      ${millis("max(again.last_started)")} AS "startedLastMs",
      count(*) FILTER (WHERE leased_at > lost.last AND leased_at < again.last)::int AS "overtookBy",
      ${millis("max(leased_at)")} AS "tailMs"
    FROM backlog, lost, again`,
    [lost.map(({ task_id }) => task_id), lost.map(({ fence }) => fence), killedAt],
  );
  const { inFront, overtookBy, ...times } = row!;
  const rest = Object.fromEntries(Object.entries(times).map(([name, ms]) => [name, Math.round(ms)]));
  return { ...(rest as typeof times), inFront, overtookBy };
}

const millis = (time: string): string => `(date_part('epoch', ${time}) * 1000 - $3::float8)::float8`;

async function count({ query }: Cluster, table: "lease" | "attempt"): Promise<number> {
  return (await query<{ n: number }>(`SELECT count(*)::int AS n FROM ${table}`))[0]!.n;
}

/** By the database's clock, which the leases' times are of. */
async function clockMs({ query }: Cluster): Promise<number> {
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
