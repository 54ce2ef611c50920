import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { PlacedTask } from "./places.ts";

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";

/** A task as it comes out of `suspended`. */
export interface WokenRow {
  task_id: bigint;
  route_id: number;
  rank: number;
  attempt: number;
  failures: number;
  losses: number;
  /** Its run is paused. */
  paused: boolean;
}

/** What people see a suspended task wait for: the first of its waits. */
export interface FirstWait {
  readonly waitsFor: number;
  readonly name: string | null;
  readonly childRunId: bigint | null;
}

/** Suspends a task until the first of its waits is due, where one has a time. */
export const insertSuspended = (db: Db, p: { tenantId: number; task: PlacedTask; first: FirstWait; paused: boolean }) =>
  db.rows(
    "insert_suspended",
    `
  INSERT INTO suspended (tenant_id, ${TASK_COLUMNS}, waits_for, name, child_run_id, paused, wake_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, (
    SELECT min(due_at) FROM step WHERE tenant_id = $1 AND task_id = $2 AND done IS NULL
  ))`,
    [
      p.tenantId,
      p.task.taskId,
      p.task.routeId,
      p.task.rank,
      p.task.attempt,
      p.task.failures,
      p.task.losses,
      p.first.waitsFor,
      p.first.name,
      p.first.childRunId,
      p.paused,
    ],
  );

/** Suspended tasks whose time has come, of every tenant. */
export const listDueSuspended = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; task_id: bigint }>(
    "list_due_suspended",
    `
  SELECT tenant_id, task_id FROM suspended
  WHERE wake_at <= clock_timestamp()
  ORDER BY wake_at
  LIMIT $1`,
    [p.limit],
  );

/** Takes out tasks whose time has come. What a sweep or another wake holds is passed over (SKIP LOCKED). */
export const takeDueSuspended = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<WokenRow>(
    "take_due_suspended",
    `
  DELETE FROM suspended
  WHERE tenant_id = $1 AND task_id = ANY (ARRAY(
    SELECT task_id FROM suspended
    WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[]) AND wake_at <= clock_timestamp()
    ORDER BY task_id
    FOR UPDATE SKIP LOCKED
  ))
  RETURNING ${TASK_COLUMNS}, paused`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** Takes out a task, whatever it waits for; nobody where a sweep or another wake was first. */
export const takeSuspended = (db: Db, p: { tenantId: number; taskId: bigint }) =>
  db.find<WokenRow>(
    "take_suspended",
    `
  DELETE FROM suspended
  WHERE tenant_id = $1 AND task_id = $2
  RETURNING ${TASK_COLUMNS}, paused`,
    [p.tenantId, p.taskId],
  );

/** Locks a suspended task's place. False where it is not suspended. */
export const lockSuspended = async (db: Db, p: { tenantId: number; taskId: bigint }): Promise<boolean> => {
  const row = await db.find<{ task_id: bigint }>(
    "lock_suspended",
    `
  SELECT task_id FROM suspended
  WHERE tenant_id = $1 AND task_id = $2
  FOR UPDATE`,
    [p.tenantId, p.taskId],
  );
  return row !== undefined;
};

/**
 * Says of a run's suspended tasks whether it is paused. Who wakes one reads it under the row's lock, so that what a wake
 * in flight places is caught by the next sweep of the pause, or held.
 */
export const setSuspendedPaused = (db: Db, p: { tenantId: number; runId: bigint; paused: boolean }) =>
  db.rows(
    "set_suspended_paused",
    `
  UPDATE suspended SET paused = $3
  WHERE tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20`,
    [p.tenantId, p.runId, p.paused],
  );
