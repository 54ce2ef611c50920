import { int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** Where a task that has not ended may stand, in the direction that work flows. */
export const PLACES = ["suspended", "held", "scheduled", "ready"] as const;
export type Place = (typeof PLACES)[number];

/** A task as it stands in one of these tables. */
export interface PlacedTask {
  readonly taskId: bigint;
  readonly routeId: number;
  readonly rank: number;
  /** Leases had so far; failures and time-outs; leases lost after the start. */
  readonly attempt: number;
  readonly failures: number;
  readonly losses: number;
  /** Since when it is ready, where it was so before and never started; now where absent. */
  readonly readyAt?: Date | null;
}

const columns = (tasks: readonly PlacedTask[]) => [
  int8Array(tasks.map((task) => task.taskId)),
  int4Array(tasks.map((task) => task.routeId)),
  int2Array(tasks.map((task) => task.rank)),
  int4Array(tasks.map((task) => task.attempt)),
  int4Array(tasks.map((task) => task.failures)),
  int4Array(tasks.map((task) => task.losses)),
];

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";

export const insertReady = (db: Db, p: { tenantId: number; tasks: readonly PlacedTask[] }) =>
  db.rows(
    "insert_ready",
    `
  INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
  SELECT $1, ${TASK_COLUMNS}, coalesce(ready_at, clock_timestamp())
  FROM unnest($2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::int[], $7::int[], $8::timestamptz[])
    AS task (${TASK_COLUMNS}, ready_at)`,
    [p.tenantId, ...columns(p.tasks), p.tasks.map((task) => task.readyAt ?? null)],
  );

export const insertScheduled = (
  db: Db,
  p: { tenantId: number; tasks: readonly (PlacedTask & { delayMs: number; limited: boolean })[] },
) =>
  db.rows(
    "insert_scheduled",
    `
  INSERT INTO scheduled (tenant_id, ${TASK_COLUMNS}, due_at, limited)
  SELECT $1, ${TASK_COLUMNS}, clock_timestamp() + delay_ms * interval '1 ms', limited
  FROM unnest($2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::boolean[])
    AS task (${TASK_COLUMNS}, delay_ms, limited)`,
    [p.tenantId, ...columns(p.tasks), p.tasks.map((task) => task.delayMs), p.tasks.map((task) => task.limited)],
  );

/** `reason`: 1 paused, 2 concurrency key, 3 max_parallel. */
export const insertHeld = (
  db: Db,
  p: { tenantId: number; tasks: readonly (PlacedTask & { delayMs: number; limited: boolean })[]; reason: number },
) =>
  db.rows(
    "insert_held",
    `
  INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at, limited)
  SELECT $1, ${TASK_COLUMNS}, $10, clock_timestamp() + delay_ms * interval '1 ms', limited
  FROM unnest($2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::boolean[])
    AS task (${TASK_COLUMNS}, delay_ms, limited)`,
    [
      p.tenantId,
      ...columns(p.tasks),
      p.tasks.map((task) => task.delayMs),
      p.tasks.map((task) => task.limited),
      p.reason,
    ],
  );

/** Takes tasks of a run out of one place. Each place is a statement of its own, so that it sees what the last one freed. */
export const sweepPlace = (db: Db, p: { place: Place; tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<{ task_id: bigint }>(
    `sweep_${p.place}`,
    `
  DELETE FROM ${p.place}
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
  RETURNING task_id`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** Takes everything of a run out of one place. */
export const sweepRun = (db: Db, p: { place: Place; tenantId: number; runId: bigint }) =>
  db.rows<{ task_id: bigint; route_id: number; rank: number; attempt: number; failures: number; losses: number }>(
    `sweep_run_${p.place}`,
    `
  DELETE FROM ${p.place}
  WHERE tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20
  RETURNING ${TASK_COLUMNS}`,
    [p.tenantId, p.runId],
  );

export interface Promoted {
  route_id: number;
}

/** Moves due tasks that no limit concerns, of every tenant, from scheduled to ready; rows a sweep holds are passed over (SKIP LOCKED). */
export const promoteScheduled = (db: Db, p: { limit: number }) =>
  db.rows<Promoted>(
    "promote_scheduled",
    `
  WITH due AS (
    DELETE FROM scheduled
    WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM scheduled
      WHERE due_at <= clock_timestamp() AND NOT limited
      ORDER BY due_at
      LIMIT $1
      FOR UPDATE SKIP LOCKED
    ))
    RETURNING tenant_id, ${TASK_COLUMNS}, due_at
  )
  INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
  SELECT tenant_id, ${TASK_COLUMNS}, due_at FROM due
  RETURNING route_id`,
    [p.limit],
  );

/** Due tasks that must pass a limit first, of every tenant. */
export const listDueLimited = (db: Db, p: { limit: number; exceptRunIds: readonly bigint[] }) =>
  db.rows<{ tenant_id: number; task_id: bigint }>(
    "list_due_limited",
    `
  SELECT tenant_id, task_id FROM scheduled
  WHERE due_at <= clock_timestamp() AND limited AND task_id >> 20 <> ALL ($2::bigint[])
  ORDER BY due_at
  LIMIT $1`,
    [p.limit, int8Array(p.exceptRunIds)],
  );

/** Takes due tasks of a run out of scheduled. */
export const takeDueLimited = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<{ task_id: bigint; route_id: number; rank: number; attempt: number; failures: number; losses: number }>(
    "take_due_limited",
    `
  DELETE FROM scheduled
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[]) AND limited AND due_at <= clock_timestamp()
  RETURNING ${TASK_COLUMNS}`,
    [p.tenantId, int8Array(p.taskIds)],
  );
