import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export interface LockedRun {
  id: bigint;
  definition_id: bigint;
  state: number;
  open_count: number;
  failing_count: number;
  sequence: number;
  /** Its start time has come. */
  is_due: boolean;
  /** The task whose handler started it. */
  parent_task_id: bigint | null;
}

const LOCKED = `id, definition_id, state, open_count, failing_count, sequence, parent_task_id,
    due_at IS NULL OR due_at <= clock_timestamp() AS is_due`;

/** Locks a run for a move. `skipLocked` answers nothing where another holds it. */
export const lockRun = (db: Db, p: { tenantId: number; runId: bigint; skipLocked?: boolean }) =>
  db.find<LockedRun>(
    p.skipLocked ? "lock_run_skip" : "lock_run",
    `
  SELECT ${LOCKED}
  FROM run
  WHERE tenant_id = $1 AND id = $2
  FOR NO KEY UPDATE${p.skipLocked ? " SKIP LOCKED" : ""}`,
    [p.tenantId, p.runId],
  );

/** Locks runs, in ascending order of their ids as they are given. */
export const lockRuns = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<LockedRun>(
    "lock_runs",
    `
  SELECT run.id, run.definition_id, run.state, run.open_count, run.failing_count, run.sequence, run.parent_task_id,
    run.is_due
  FROM unnest($2::bigint[]) AS named (id)
  CROSS JOIN LATERAL (
    SELECT ${LOCKED}
    FROM run
    WHERE tenant_id = $1 AND id = named.id
    FOR NO KEY UPDATE
    OFFSET 0
  ) AS run`,
    [p.tenantId, int8Array(p.runIds)],
  );
