/**
 * The row changes of a run, written down as anyone would: a statement a table, rows joined by `unnest`. On the mesh's
 * own tables, so that what is compared is only how they are changed. One definition, one route, one tenant.
 */
import type { Db } from "@runmesh/store/db";

export interface PlainRun {
  readonly id: bigint;
  /** Of each task by ordinal: dependencies it waits for. */
  readonly pending: readonly number[];
}

/** A task that ended, and the tasks that wait for it. */
export interface PlainEnd {
  readonly taskId: bigint;
  readonly dependents: readonly bigint[];
}

const OUTPUT = '{"n":1}';

export function startRuns(db: Db, runs: readonly PlainRun[]): Promise<void> {
  const ids = runs.map((run) => run.id);
  const tasks = runs.flatMap((run) =>
    run.pending.map((pending, ordinal) => ({ id: taskOf(run.id, ordinal), pending })),
  );
  return db.transaction(async (tx) => {
    await tx.rows(
      "plain_keys",
      `INSERT INTO start_key (tenant_id, workflow_id, digest, run_id, body_hash)
       SELECT 1, 1, gen_random_uuid(), id, gen_random_uuid() FROM unnest($1::bigint[]) AS named (id)`,
      [ids],
    );
    await tx.rows(
      "plain_runs",
      `INSERT INTO run (tenant_id, id, definition_id, workflow_id, state, task_count, open_count, input, started_at)
       SELECT 1, id, 1, 1, 2, count, count, $3, now()
       FROM unnest($1::bigint[], $2::int[]) AS named (id, count)`,
      [ids, runs.map((run) => run.pending.length), Buffer.from(OUTPUT)],
    );
    await tx.rows(
      "plain_tasks",
      `INSERT INTO task (tenant_id, id, pending)
       SELECT 1, id, pending FROM unnest($1::bigint[], $2::int[]) AS named (id, pending)`,
      [tasks.map((task) => task.id), tasks.map((task) => task.pending)],
    );
    await insertReady(
      tx,
      tasks.filter((task) => task.pending === 0).map((task) => task.id),
    );
    await tx.rows(
      "plain_created",
      `INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types)
       SELECT id & 15, 1, count(*), array_agg(id), array_agg(1), array_agg(1), array_agg(1)
       FROM unnest($1::bigint[]) AS named (id)
       GROUP BY id & 15`,
      [ids],
    );
  });
}

/** Ids of tasks that are leased from now on. */
export async function claim(db: Db, limit: number): Promise<bigint[]> {
  const rows = await db.rows<{ task_id: bigint }>(
    "plain_claim",
    `WITH taken AS (
       DELETE FROM ready
       WHERE ctid = ANY (ARRAY(
         SELECT ctid FROM ready WHERE route_id = 1 ORDER BY rank, ready_at LIMIT $1 FOR UPDATE SKIP LOCKED))
       RETURNING task_id, attempt
     )
     INSERT INTO lease (tenant_id, task_id, fence, session_id, route_id, rank, attempt, failures, losses, leased_at,
       expires_at)
     SELECT 1, task_id, nextval('fence'), 1, 1, 0, attempt + 1, 0, 0, now(), now() + interval '15 s' FROM taken
     RETURNING task_id`,
    [limit],
  );
  return rows.map((row) => row.task_id);
}

/** Answers the runs that ended. */
export function complete(db: Db, ends: readonly PlainEnd[]): Promise<bigint[]> {
  const taskIds = ends.map((end) => end.taskId);
  const runIds = [...new Set(taskIds.map((id) => id >> 20n))].sort((a, b) => (a < b ? -1 : 1));
  return db.transaction(async (tx) => {
    await tx.rows("plain_lock", "SELECT id FROM run WHERE tenant_id = 1 AND id = ANY ($1) ORDER BY id FOR UPDATE", [
      runIds,
    ]);
    await tx.rows(
      "plain_end",
      `WITH ended AS (
         DELETE FROM lease WHERE tenant_id = 1 AND task_id = ANY ($1) AND expires_at > now()
         RETURNING task_id, fence, attempt, leased_at
       )
       INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, ended_at, outcome, sequence, output)
       SELECT 1, task_id, fence, attempt, 1, leased_at, now(), 1, run.sequence + 1, $2
       FROM ended JOIN run ON run.tenant_id = 1 AND run.id = ended.task_id >> 20`,
      [taskIds, Buffer.from(OUTPUT)],
    );
    await unblock(
      tx,
      ends.flatMap((end) => end.dependents),
    );
    const moved = await tx.rows<{ id: bigint; open_count: number }>(
      "plain_move",
      `UPDATE run
       SET open_count = open_count - n, sequence = sequence + n + (open_count = n)::int,
         state = CASE WHEN open_count = n THEN 4 ELSE state END,
         finished_at = CASE WHEN open_count = n THEN now() END
       FROM (SELECT task_id >> 20 AS run_id, count(*)::int AS n FROM unnest($1::bigint[]) AS named (task_id) GROUP BY 1)
         AS ended
       WHERE tenant_id = 1 AND id = run_id
       RETURNING id, open_count`,
      [taskIds],
    );
    const over = moved.filter((run) => run.open_count === 0).map((run) => run.id);
    await tx.rows(
      "plain_events",
      `INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, task_ids)
       SELECT run_id & 15, 1, count(*), array_agg(run_id), array_agg(1), array_agg(2), array_agg(type), array_agg(task_id)
       FROM (
         SELECT task_id >> 20 AS run_id, 20 AS type, task_id FROM unnest($1::bigint[]) AS named (task_id)
         UNION ALL
         SELECT run_id, 5, NULL FROM unnest($2::bigint[]) AS named (run_id)
       ) AS event
       GROUP BY run_id & 15`,
      [taskIds, over],
    );
    return over;
  });
}

/** Answers how many events left the outbox. */
export async function relay(db: Db, limit: number): Promise<number> {
  const rows = await db.rows<{ size: number }>(
    "plain_relay",
    "DELETE FROM outbox WHERE (lane_group, id) IN (SELECT lane_group, id FROM outbox LIMIT $1) RETURNING size",
    [limit],
  );
  return rows.reduce((sum, row) => sum + row.size, 0);
}

async function unblock(tx: Db, dependents: readonly bigint[]): Promise<void> {
  if (dependents.length === 0) return;
  const rows = await tx.rows<{ id: bigint }>(
    "plain_unblock",
    `WITH freed AS (
       UPDATE task SET pending = pending - n
       FROM (SELECT task_id, count(*)::int AS n FROM unnest($1::bigint[]) AS named (task_id) GROUP BY 1) AS ended
       WHERE tenant_id = 1 AND id = task_id
       RETURNING id, pending
     )
     SELECT id FROM freed WHERE pending = 0`,
    [dependents],
  );
  await insertReady(
    tx,
    rows.map((row) => row.id),
  );
}

async function insertReady(tx: Db, taskIds: readonly bigint[]): Promise<void> {
  if (taskIds.length === 0) return;
  await tx.rows(
    "plain_ready",
    `INSERT INTO ready (tenant_id, task_id, route_id, rank, attempt, failures, losses, ready_at)
     SELECT 1, id, 1, 0, 0, 0, 0, clock_timestamp() FROM unnest($1::bigint[]) AS named (id)`,
    [taskIds],
  );
}

export const taskOf = (runId: bigint, ordinal: number): bigint => (runId << 20n) | BigInt(ordinal);
