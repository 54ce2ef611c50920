import { byteaArray, int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { LAST, STEP_KINDS, STEP_OUTCOMES, type StepCall } from "./steps.ts";

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
