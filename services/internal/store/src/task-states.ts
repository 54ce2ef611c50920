import { TASK_STATES } from "@runmesh/domain/states";
import type { Db } from "./db.ts";

/** Where every task of a run stands, by ordinal. */
export interface TaskStates {
  readonly states: Uint8Array;
  readonly pending: Int32Array;
}

/**
 * Derives the state of each task of a run: DEAD, CANCELLED and SKIPPED are written on the task, SUCCEEDED is an
 * attempt's outcome, and the rest is the place where the task stands. One statement, so one snapshot.
 */
export async function listTaskStates(
  db: Db,
  p: { tenantId: number; runId: bigint; taskCount: number },
): Promise<TaskStates> {
  const rows = await db.rows<{ ordinal: number; pending: number; state: number }>(
    "list_task_states",
    TASK_STATES_TEXT,
    [p.tenantId, p.runId],
  );
  const states = new Uint8Array(p.taskCount);
  const pending = new Int32Array(p.taskCount);
  for (const row of rows) {
    states[row.ordinal] = row.state;
    pending[row.ordinal] = row.pending;
  }
  return { states, pending };
}

/** A run's tasks are [run << 20, (run + 1) << 20): both bounds are given, so that partitions are pruned. */
const within = (table: string, id = "task_id") =>
  `${table}.tenant_id = $1 AND ${table}.${id} >= $2::bigint << 20 AND ${table}.${id} < ($2::bigint + 1) << 20`;

const TASK_STATES_TEXT = `
  SELECT (task.id & 1048575)::int AS ordinal, task.pending,
    CASE
      WHEN task.state <> 0 THEN task.state
      WHEN done.task_id IS NOT NULL THEN ${TASK_STATES.SUCCEEDED}
      WHEN lease.task_id IS NOT NULL THEN ${TASK_STATES.LEASED}
      WHEN ready.task_id IS NOT NULL OR held.task_id IS NOT NULL THEN ${TASK_STATES.READY}
      WHEN scheduled.task_id IS NOT NULL THEN
        CASE WHEN scheduled.attempt > 0 THEN ${TASK_STATES.RETRY_WAIT} ELSE ${TASK_STATES.READY} END
      WHEN suspended.task_id IS NOT NULL THEN ${TASK_STATES.SUSPENDED}
      ELSE ${TASK_STATES.BLOCKED}
    END::int AS state
  FROM task
  LEFT JOIN (
    SELECT attempt.task_id FROM attempt WHERE ${within("attempt")} AND attempt.outcome = 1
  ) AS done ON done.task_id = task.id
  LEFT JOIN (SELECT task_id FROM lease WHERE ${within("lease")}) AS lease ON lease.task_id = task.id
  LEFT JOIN (SELECT task_id FROM ready WHERE ${within("ready")}) AS ready ON ready.task_id = task.id
  LEFT JOIN (SELECT task_id FROM held WHERE ${within("held")}) AS held ON held.task_id = task.id
  LEFT JOIN (
    SELECT task_id, attempt FROM scheduled WHERE ${within("scheduled")}
  ) AS scheduled ON scheduled.task_id = task.id
  LEFT JOIN (SELECT task_id FROM suspended WHERE ${within("suspended")}) AS suspended ON suspended.task_id = task.id
  WHERE ${within("task", "id")}
  ORDER BY task.id`;
