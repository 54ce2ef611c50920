import type { Db } from "./db.ts";

/** Says whose handler started a run that was just inserted. */
export const setParent = (db: Db, p: { tenantId: number; runId: bigint; parentTaskId: bigint; detached: boolean }) =>
  db.rows(
    "set_parent",
    `
  UPDATE run SET parent_run_id = $3::bigint >> 20, parent_task_id = $3::bigint, detached = $4
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId, p.parentTaskId, p.detached],
  );

/** What a move changes on the run's row. Counters are added to; `failure` is kept once it is set. */
export interface RunChange {
  readonly state: number;
  readonly sequence: number;
  readonly ended: number;
  readonly dead: number;
  readonly skipped: number;
  readonly cancelled: number;
  readonly failing: number;
  readonly isTerminal: boolean;
  readonly failure: { taskId: bigint; type: string; message: Buffer } | undefined;
}

export const changeRun = (db: Db, p: { tenantId: number; runId: bigint } & RunChange) =>
  db.one<{ finished_at: Date | null }>(
    "change_run",
    `
  UPDATE run
  SET state = $3::smallint, sequence = $4, open_count = open_count - $5, dead_count = dead_count + $6,
    skipped_count = skipped_count + $7, cancelled_count = cancelled_count + $8, failing_count = failing_count + $9,
    finished_at = CASE WHEN $10 THEN clock_timestamp() END,
    started_at = CASE WHEN $3::smallint = 2 THEN coalesce(started_at, clock_timestamp()) ELSE started_at END,
    failure_task_id = coalesce(failure_task_id, $11), failure_type = coalesce(failure_type, $12),
    failure_message = coalesce(failure_message, $13)
  WHERE tenant_id = $1 AND id = $2
  RETURNING finished_at`,
    [
      p.tenantId,
      p.runId,
      p.state,
      p.sequence,
      p.ended,
      p.dead,
      p.skipped,
      p.cancelled,
      p.failing,
      p.isTerminal,
      p.failure?.taskId ?? null,
      p.failure?.type ?? null,
      p.failure?.message ?? null,
    ],
  );

/** Says on a cancelled run's row, which tells its end, who made it and why. */
export const noteCancellation = (db: Db, p: { tenantId: number; runId: bigint; principal: string; comment: string }) =>
  db.rows(
    "note_cancellation",
    `
  UPDATE run SET cancelled_by = $3, cancel_comment = $4
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId, p.principal, p.comment],
  );

/** Opens an ended run's row again, its counters derived anew and its deadline armed again; answers how it had ended. */
export const reopenRunRow = (
  db: Db,
  p: {
    tenantId: number;
    runId: bigint;
    sequence: number;
    open: number;
    dead: number;
    skipped: number;
    cancelled: number;
    failing: number;
    deadlineMs: number;
  },
) =>
  db.one<{ finished_at: Date; cancelled_by: string | null; cancel_comment: string | null }>(
    "reopen_run_row",
    `
  WITH before AS MATERIALIZED (
    SELECT finished_at, cancelled_by, cancel_comment FROM run WHERE tenant_id = $1 AND id = $2
  ), reopened AS (
    UPDATE run
    SET state = 2, sequence = $3, open_count = $4, dead_count = $5, skipped_count = $6, cancelled_count = $7,
      failing_count = $8, finished_at = NULL, failure_task_id = NULL, failure_type = NULL, failure_message = NULL,
      cancelled_by = NULL, cancel_comment = NULL,
      started_at = coalesce(started_at, clock_timestamp()),
      deadline_at = CASE WHEN $9::bigint > 0 THEN clock_timestamp() + $9::bigint * interval '1 ms' END
    WHERE tenant_id = $1 AND id = $2
    RETURNING deadline_at
  ), timer AS (
    INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
    SELECT $1, $2, 2, deadline_at FROM reopened WHERE deadline_at IS NOT NULL
    ON CONFLICT (tenant_id, run_id, kind) DO UPDATE SET due_at = excluded.due_at
  )
  SELECT finished_at, cancelled_by, cancel_comment FROM before`,
    [p.tenantId, p.runId, p.sequence, p.open, p.dead, p.skipped, p.cancelled, p.failing, p.deadlineMs],
  );
