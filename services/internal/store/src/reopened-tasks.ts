import type { Db } from "./db.ts";

/** What a reopened task's history says of it. */
export interface ReopenedTask {
  task_id: bigint;
  /** Number of its last attempt. */
  number: number;
  /** How long its last lease could still be in use by a handler that was not heard to end; at most 0 where it cannot. */
  exclusive_wait_ms: number;
}

/** The last attempts of a run's tasks. Outcomes 4 and 5, cancelled and timed out, leave a handler that may still run. */
export const listReopened = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows<ReopenedTask>(
    "list_reopened",
    `
  SELECT DISTINCT ON (attempt.task_id) attempt.task_id, attempt.number,
    CASE WHEN attempt.outcome IN (4, 5) THEN
      ceil(extract(epoch FROM attempt.ended_at + session.lease_ms * interval '1 ms' - clock_timestamp()) * 1000)
      ELSE 0 END::float8 AS exclusive_wait_ms
  FROM attempt
  LEFT JOIN session ON session.tenant_id = attempt.tenant_id AND session.id = attempt.session_id
  WHERE attempt.tenant_id = $1
    AND attempt.task_id >= $2::bigint << 20 AND attempt.task_id < ($2::bigint + 1) << 20
  ORDER BY attempt.task_id, attempt.fence DESC`,
    [p.tenantId, p.runId],
  );
