import { byteaArray, int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export const STEP_KINDS = { STEP: 1, SLEEP: 2, SIGNAL: 3, CHILD: 4, RESULT: 5 } as const;
export const STEP_OUTCOMES = { ANSWERED: 1, FAILED: 2, TIMED_OUT: 3 } as const;

/** Recorded calls that a task has at most, and bytes of their answers. */
export const MAX_STEPS = 10_000;
/** Calls that lost their place with a failure they followed from stand from MAX_STEPS on, below this. */
export const MAX_POSITION = 1_000_000_000;
export const MAX_STEP_BYTES = 64 * 1024 * 1024;

/** A call of a handler: what it is, and its place in the order of calls. */
export interface StepCall {
  readonly position: number;
  readonly kind: number;
  readonly name: string;
  readonly occurrence: number;
}

export interface StepRow {
  position: number;
  kind: number;
  name: string;
  occurrence: number;
  /** Null while it waits. */
  done: number | null;
  outcome: number;
  value: Buffer | null;
  child_run_id: bigint | null;
  renew: boolean;
}

const COLUMNS = "position, kind, name, occurrence, done, outcome, value, child_run_id, renew";

/** Where a task's record ends. */
export const LAST = `
    SELECT coalesce(max(done), 0) AS done, coalesce(max(total_bytes), 0) AS total_bytes FROM (
      SELECT done, total_bytes FROM step
      WHERE tenant_id = $1 AND task_id = $2 AND done IS NOT NULL
      ORDER BY done DESC
      LIMIT 1
    ) AS last`;

/**
 * Records answers, in their order. What is recorded already stays as it was; where it only waited, it is answered now.
 * The task's lease is locked, so nobody else writes its record. Answers the bytes that the record has then.
 */
export const recordSteps = (
  db: Db,
  p: {
    tenantId: number;
    taskId: bigint;
    steps: readonly (StepCall & { outcome: number; value: Buffer | null; childRunId: bigint | null })[];
  },
) =>
  db.rows<{ total_bytes: bigint }>(
    "record_steps",
    `
  INSERT INTO step (tenant_id, task_id, position, kind, name, occurrence, done, outcome, value, total_bytes,
    child_run_id)
  SELECT $1, $2, given.position, given.kind, given.name, given.occurrence, last.done + given.n::int, given.outcome,
    given.value, last.total_bytes + sum(coalesce(octet_length(given.value), 0)) OVER (ORDER BY given.n),
    given.child_run_id
  FROM unnest($3::int[], $4::smallint[], $5::text[], $6::int[], $7::smallint[], $8::bytea[], $9::bigint[])
    WITH ORDINALITY AS given (position, kind, name, occurrence, outcome, value, child_run_id, n)
  CROSS JOIN (${LAST}) AS last
  ON CONFLICT (tenant_id, task_id, position) DO UPDATE
  SET done = excluded.done, outcome = excluded.outcome, value = excluded.value, total_bytes = excluded.total_bytes,
    child_run_id = excluded.child_run_id, at = clock_timestamp()
  WHERE step.done IS NULL
  RETURNING total_bytes`,
    [
      p.tenantId,
      p.taskId,
      int4Array(p.steps.map((step) => step.position)),
      int2Array(p.steps.map((step) => step.kind)),
      p.steps.map((step) => step.name),
      int4Array(p.steps.map((step) => step.occurrence)),
      int2Array(p.steps.map((step) => step.outcome)),
      byteaArray(p.steps.map((step) => step.value)),
      p.steps.map((step) => step.childRunId),
    ],
  );

/** Steps of a task at these positions. */
export const findSteps = (db: Db, p: { tenantId: number; taskId: bigint; positions: readonly number[] }) =>
  db.rows<StepRow & { due_at: Date | null }>(
    "find_steps",
    `
  SELECT ${COLUMNS}, due_at FROM step
  WHERE tenant_id = $1 AND task_id = $2 AND position = ANY ($3::int[])
  ORDER BY position`,
    [p.tenantId, p.taskId, int4Array(p.positions)],
  );

/** A page of a task's record, by position, of about `maxBytes` of answers. */
export const listSteps = (
  db: Db,
  p: { tenantId: number; taskId: bigint; fromPosition: number; limit: number; maxBytes: number },
) =>
  db.rows<StepRow>(
    "list_steps",
    `
  SELECT ${COLUMNS} FROM (
    SELECT ${COLUMNS}, octet_length(value) AS size,
      sum(coalesce(octet_length(value), 0)) OVER (ORDER BY position) AS running
    FROM step
    WHERE tenant_id = $1 AND task_id = $2 AND position >= $3
    ORDER BY position
    LIMIT $4
  ) AS page
  WHERE position = $3 OR running - coalesce(size, 0) <= $5
  ORDER BY position`,
    [p.tenantId, p.taskId, p.fromPosition, p.limit, p.maxBytes],
  );

/** Forgets the whole record of tasks. */
export const deleteSteps = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows(
    "delete_steps",
    `
  DELETE FROM step
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
  RETURNING task_id`,
    [p.tenantId, int8Array(p.taskIds)],
  );
