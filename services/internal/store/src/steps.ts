import { byteaArray, int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export const STEP_KINDS = { STEP: 1, SLEEP: 2, SIGNAL: 3, CHILD: 4, RESULT: 5 } as const;
export const STEP_OUTCOMES = { ANSWERED: 1, FAILED: 2, TIMED_OUT: 3 } as const;

/** Recorded calls that a task has at most, and bytes of their answers. */
export const MAX_STEPS = 10_000;
/** Steps that lost their place with a failure they followed from stand from MAX_STEPS on, up to here. */
export const MAX_POSITION = 2 * MAX_STEPS;
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
const LAST = `
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

/** Notes what a handler waits for; a wait that is noted already keeps its time. */
export const insertWaits = (
  db: Db,
  p: {
    tenantId: number;
    taskId: bigint;
    waits: readonly (StepCall & { durationMs: number | null; childRunId: bigint | null })[];
  },
) =>
  db.rows(
    "insert_waits",
    `
  INSERT INTO step (tenant_id, task_id, position, kind, name, occurrence, due_at, child_run_id)
  SELECT $1, $2, position, kind, name, occurrence, clock_timestamp() + duration_ms * interval '1 ms', child_run_id
  FROM unnest($3::int[], $4::smallint[], $5::text[], $6::int[], $7::bigint[], $8::bigint[])
    AS given (position, kind, name, occurrence, duration_ms, child_run_id)
  ON CONFLICT DO NOTHING`,
    [
      p.tenantId,
      p.taskId,
      int4Array(p.waits.map((wait) => wait.position)),
      int2Array(p.waits.map((wait) => wait.kind)),
      p.waits.map((wait) => wait.name),
      int4Array(p.waits.map((wait) => wait.occurrence)),
      p.waits.map((wait) => wait.durationMs),
      p.waits.map((wait) => wait.childRunId),
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

/** Answers waits of one task whose rows nobody else writes: its lease, or its place among the suspended, is locked. */
export const answerWaits = (
  db: Db,
  p: {
    tenantId: number;
    taskId: bigint;
    answers: readonly { position: number; outcome: number; value: Buffer | null }[];
  },
) =>
  db.rows(
    "answer_waits",
    `
  UPDATE step
  SET done = answered.done, outcome = answered.outcome, value = answered.value, total_bytes = answered.total_bytes,
    at = clock_timestamp()
  FROM (
    SELECT given.position, given.outcome, given.value, last.done + given.n::int AS done,
      last.total_bytes + sum(coalesce(octet_length(given.value), 0)) OVER (ORDER BY given.n) AS total_bytes
    FROM unnest($3::int[], $4::smallint[], $5::bytea[]) WITH ORDINALITY AS given (position, outcome, value, n)
    CROSS JOIN (${LAST}) AS last
  ) AS answered
  WHERE step.tenant_id = $1 AND step.task_id = $2 AND step.position = answered.position AND step.done IS NULL`,
    [
      p.tenantId,
      p.taskId,
      int4Array(p.answers.map((answer) => answer.position)),
      int2Array(p.answers.map((answer) => answer.outcome)),
      byteaArray(p.answers.map((answer) => answer.value)),
    ],
  );

/** Answers the waits of suspended tasks whose time has come; their places are taken. Sleeps end, others time out. */
export const answerDueWaits = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows(
    "answer_due_waits",
    `
  UPDATE step
  SET done = answered.done, outcome = CASE WHEN step.kind = ${STEP_KINDS.SLEEP} THEN ${STEP_OUTCOMES.ANSWERED}
    ELSE ${STEP_OUTCOMES.TIMED_OUT} END, total_bytes = answered.total_bytes, at = clock_timestamp()
  FROM (
    SELECT due.task_id, due.position, last.total_bytes,
      last.done + (row_number() OVER (PARTITION BY due.task_id ORDER BY due.due_at, due.position))::int AS done
    FROM unnest($2::bigint[]) AS named (task_id)
    CROSS JOIN LATERAL (
      SELECT task_id, position, due_at FROM step
      WHERE tenant_id = $1 AND task_id = named.task_id AND done IS NULL AND due_at <= clock_timestamp()
    ) AS due
    CROSS JOIN LATERAL (
      SELECT coalesce(max(done), 0) AS done, coalesce(max(total_bytes), 0) AS total_bytes FROM step
      WHERE tenant_id = $1 AND task_id = named.task_id AND done IS NOT NULL
    ) AS last
  ) AS answered
  WHERE step.tenant_id = $1 AND step.task_id = answered.task_id AND step.position = answered.position`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** The other run of a failed child, started by a later pass: what still waits for the one before waits for it anew. */
export const renewChild = (db: Db, p: { tenantId: number; taskId: bigint; position: number; childRunId: bigint }) =>
  db.rows(
    "renew_child",
    `
  WITH waiting AS (
    DELETE FROM step
    USING step AS child
    WHERE step.tenant_id = $1 AND step.task_id = $2 AND step.kind = ${STEP_KINDS.RESULT} AND step.done IS NULL
      AND child.tenant_id = $1 AND child.task_id = $2 AND child.position = $3
      AND step.child_run_id = child.child_run_id
  )
  UPDATE step SET child_run_id = $4, renew = false, at = clock_timestamp()
  WHERE tenant_id = $1 AND task_id = $2 AND position = $3`,
    [p.tenantId, p.taskId, p.position, p.childRunId],
  );

/**
 * Forgets recorded failures that ended a handler, as long as its lease lives: the next attempt tries them anew. A child
 * whose end is forgotten so is started anew; one that was only not waited for any longer goes on, and is waited for anew.
 * What was called from `from` on followed from them, and the next attempt may come by another way. Steps of it never run
 * again, so their answers are kept for whoever calls them, out of the order; signals can be taken again; the rest is
 * forgotten. Answers a row where a child was forgotten with it.
 */
export const forgetFailures = (
  db: Db,
  p: {
    tenantId: number;
    sessionId: bigint;
    taskId: bigint;
    fence: bigint;
    positions: readonly number[];
    from: number;
  },
) =>
  db.rows<{ child_run_id: bigint }>(
    "forget_failures",
    `
  WITH holder AS (
    SELECT task_id FROM lease
    WHERE tenant_id = $1 AND session_id = $2 AND task_id = $3 AND fence = $4 AND expires_at > clock_timestamp()
  ), forgotten AS (
    DELETE FROM step
    USING holder
    WHERE step.tenant_id = $1 AND step.task_id = holder.task_id AND step.position = ANY ($5::int[])
      AND (outcome = ${STEP_OUTCOMES.FAILED} OR (outcome = ${STEP_OUTCOMES.TIMED_OUT} AND kind = ${STEP_KINDS.RESULT}))
    RETURNING child_run_id, outcome
  ), following AS (
    SELECT step.position,
      CASE WHEN kind = ${STEP_KINDS.STEP} AND outcome = ${STEP_OUTCOMES.ANSWERED} THEN
        (SELECT greatest(max(last.position), ${MAX_STEPS} - 1) FROM step AS last
         WHERE last.tenant_id = $1 AND last.task_id = $3)
        + row_number() OVER (
          PARTITION BY kind = ${STEP_KINDS.STEP} AND outcome = ${STEP_OUTCOMES.ANSWERED} ORDER BY step.position
        ) END AS place
    FROM step
    JOIN holder USING (task_id)
    WHERE step.tenant_id = $1 AND $6 > 0 AND step.position >= $6 AND step.position < ${MAX_STEPS}
      AND step.position <> ALL ($5::int[])
  ), moved AS (
    UPDATE step SET position = following.place
    FROM following
    WHERE step.tenant_id = $1 AND step.task_id = $3 AND step.position = following.position
      AND following.place < ${MAX_POSITION}
  ), gone AS (
    DELETE FROM step
    USING following
    WHERE step.tenant_id = $1 AND step.task_id = $3 AND step.position = following.position
      AND coalesce(following.place, ${MAX_POSITION}) >= ${MAX_POSITION}
    RETURNING kind, name, done, outcome, value, child_run_id
  ), given_back AS (
    INSERT INTO signal (tenant_id, run_id, name, value)
    SELECT $1, $3::bigint >> 20, name, value FROM gone
    WHERE kind = ${STEP_KINDS.SIGNAL} AND outcome = ${STEP_OUTCOMES.ANSWERED}
    ORDER BY done
  ), renewed AS (
    UPDATE step SET renew = true
    WHERE tenant_id = $1 AND task_id = $3 AND kind = ${STEP_KINDS.CHILD} AND ($6 = 0 OR position < $6)
      AND child_run_id = ANY (ARRAY(SELECT child_run_id FROM forgotten WHERE outcome = ${STEP_OUTCOMES.FAILED}))
  )
  SELECT child_run_id FROM gone WHERE kind = ${STEP_KINDS.CHILD} AND child_run_id IS NOT NULL`,
    [p.tenantId, p.sessionId, p.taskId, p.fence, int4Array(p.positions), p.from],
  );

/**
 * Makes ready the records of tasks that are opened again: children that ended without success and whose end is not
 * recorded are started anew.
 */
export const renewEndedChildren = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows(
    "renew_ended_children",
    `
  UPDATE step SET renew = true
  FROM run
  WHERE step.tenant_id = $1 AND step.task_id = ANY ($2::bigint[]) AND step.kind = ${STEP_KINDS.CHILD}
    AND run.tenant_id = $1 AND run.id = step.child_run_id AND run.state IN (5, 6, 7)
    AND NOT EXISTS (
      SELECT FROM step AS result
      WHERE result.tenant_id = $1 AND result.task_id = step.task_id AND result.kind = ${STEP_KINDS.RESULT}
        AND result.child_run_id = step.child_run_id AND result.done IS NOT NULL
        AND result.outcome <> ${STEP_OUTCOMES.TIMED_OUT}
    )`,
    [p.tenantId, int8Array(p.taskIds)],
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
