import type { Db } from "./db.ts";

/** A DEAD task whose run has failed. */
export interface DeadLetterRow {
  id: bigint;
  definition_id: bigint;
}

/** Newest run first, below `beforeId`. Empty filters ask for all; the error type is the last attempt's. */
export const listDeadLetters = (
  db: Db,
  p: { tenantId: number; workflow: string; errorType: string; beforeId: bigint; limit: number },
) =>
  db.rows<DeadLetterRow>(
    "list_dead_letters",
    `
  SELECT task.id, run.definition_id
  FROM task
  JOIN run ON run.tenant_id = task.tenant_id AND run.id = task.id >> 20
  JOIN workflow ON workflow.tenant_id = run.tenant_id AND workflow.id = run.workflow_id
  WHERE task.tenant_id = $1 AND task.state = 7 AND task.id < $4 AND run.state = 5
    AND ($2 = '' OR workflow.name = $2)
    AND ($3 = '' OR $3 = (
      SELECT attempt.error_type FROM attempt
      WHERE attempt.tenant_id = $1 AND attempt.task_id = task.id
      ORDER BY attempt.fence DESC
      LIMIT 1
    ))
  ORDER BY task.id DESC
  LIMIT $5`,
    [p.tenantId, p.workflow, p.errorType, p.beforeId, p.limit],
  );
