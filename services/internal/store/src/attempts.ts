import { byteaArray, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** An ended lease, as history keeps it. */
export interface NewAttempt {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly number: number;
  readonly sessionId: bigint;
  readonly leasedAt: Date;
  readonly startedAt: Date | null;
  readonly outcome: number;
  /** 0 where the outcome has no event. */
  readonly sequence: number;
  readonly eventType: number;
  readonly output: Buffer | null;
  readonly errorType: string | null;
  readonly errorMessage: Buffer | null;
  readonly errorDetails: Buffer | null;
  readonly retryable: boolean | null;
  readonly retryAfterMs: number | null;
  readonly progress: Buffer | null;
}

export const insertAttempts = (db: Db, p: { tenantId: number; attempts: readonly NewAttempt[] }) => {
  const { attempts } = p;
  return db.rows(
    "insert_attempts",
    `
  INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, started_at, ended_at, outcome,
    sequence, event_type, output, error_type, error_message, error_details, retryable, retry_at, progress)
  SELECT $1, task_id, fence, number, session_id, leased_at, started_at, clock_timestamp(), outcome, sequence,
    event_type, output, error_type, error_message, error_details, retryable,
    clock_timestamp() + retry_after_ms * interval '1 ms', progress
  FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::bigint[], $6::timestamptz[], $7::timestamptz[],
      $8::int[], $9::int[], $10::int[], $11::bytea[], $12::text[], $13::bytea[], $14::bytea[], $15::boolean[],
      $16::bigint[], $17::bytea[])
    AS ended (task_id, fence, number, session_id, leased_at, started_at, outcome, sequence, event_type, output,
      error_type, error_message, error_details, retryable, retry_after_ms, progress)`,
    [
      p.tenantId,
      int8Array(attempts.map((a) => a.taskId)),
      int8Array(attempts.map((a) => a.fence)),
      int4Array(attempts.map((a) => a.number)),
      int8Array(attempts.map((a) => a.sessionId)),
      attempts.map((a) => a.leasedAt),
      attempts.map((a) => a.startedAt),
      int4Array(attempts.map((a) => a.outcome)),
      int4Array(attempts.map((a) => a.sequence)),
      int4Array(attempts.map((a) => a.eventType)),
      byteaArray(attempts.map((a) => a.output)),
      attempts.map((a) => a.errorType),
      byteaArray(attempts.map((a) => a.errorMessage)),
      byteaArray(attempts.map((a) => a.errorDetails)),
      attempts.map((a) => a.retryable),
      attempts.map((a) => a.retryAfterMs),
      byteaArray(attempts.map((a) => a.progress)),
    ],
  );
};

/** Accepted results of tasks that have one, of any runs. */
export const findOutputs = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<{ task_id: bigint; output: Buffer | null }>(
    "find_outputs",
    `
  SELECT wanted.task_id, attempt.output
  FROM unnest($2::bigint[]) AS wanted (task_id)
  CROSS JOIN LATERAL (
    SELECT output FROM attempt
    WHERE tenant_id = $1 AND task_id = wanted.task_id AND outcome = 1
    OFFSET 0
  ) AS attempt`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** The progress that the attempt before left behind. */
export const findLastProgress = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<{ task_id: bigint; progress: Buffer | null }>(
    "find_last_progress",
    `
  SELECT wanted.task_id, attempt.progress
  FROM unnest($2::bigint[]) AS wanted (task_id)
  CROSS JOIN LATERAL (
    SELECT progress FROM attempt
    WHERE tenant_id = $1 AND task_id = wanted.task_id AND progress IS NOT NULL
    ORDER BY fence DESC
    LIMIT 1
  ) AS attempt`,
    [p.tenantId, int8Array(p.taskIds)],
  );

export interface AttemptRow {
  task_id: bigint;
  fence: bigint;
  number: number;
  worker: string | null;
  leased_at: Date;
  started_at: Date | null;
  ended_at: Date;
  outcome: number;
  sequence: number;
  error_type: string | null;
  error_message: Buffer | null;
  error_details: Buffer | null;
  retryable: boolean | null;
  progress: Buffer | null;
}

/** Ended attempts of the tasks in [fromTask, toTask], after a key (task, fence), by that key. */
export const listAttempts = (
  db: Db,
  p: { tenantId: number; fromTask: bigint; toTask: bigint; afterTask: bigint; afterFence: bigint; limit: number },
) =>
  db.rows<AttemptRow>(
    "list_attempts",
    `
  SELECT attempt.task_id, attempt.fence, attempt.number, session.name AS worker, attempt.leased_at,
    attempt.started_at, attempt.ended_at, attempt.outcome, attempt.sequence, attempt.error_type,
    attempt.error_message, attempt.error_details, attempt.retryable, attempt.progress
  FROM attempt
  LEFT JOIN session ON session.tenant_id = attempt.tenant_id AND session.id = attempt.session_id
  WHERE attempt.tenant_id = $1 AND attempt.task_id >= $2 AND attempt.task_id <= $3
    AND (attempt.task_id, attempt.fence) > ($4, $5)
  ORDER BY attempt.task_id, attempt.fence
  LIMIT $6`,
    [p.tenantId, p.fromTask, p.toTask, p.afterTask, p.afterFence, p.limit],
  );

/** Of these tasks of a run those whose last attempts, so many and since they were last opened, were all LOST. */
export const listLostInARow = (
  db: Db,
  p: { tenantId: number; runId: bigint; taskIds: readonly bigint[]; count: number },
) =>
  db.rows<{ task_id: bigint }>(
    "list_lost_in_a_row",
    `
  SELECT named.task_id
  FROM unnest($3::bigint[]) AS named (task_id)
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE outcome = 3) AS lost
    FROM (
      SELECT outcome FROM attempt
      WHERE tenant_id = $1 AND task_id = named.task_id
        AND leased_at > coalesce(
          (SELECT max(at) FROM run_event WHERE tenant_id = $1 AND run_id = $2 AND type IN (9, 25)), '-infinity')
      ORDER BY fence DESC
      LIMIT $4
    ) AS latest
  ) AS latest
  WHERE latest.lost = $4`,
    [p.tenantId, p.runId, int8Array(p.taskIds), p.count],
  );
