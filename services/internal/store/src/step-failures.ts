import { int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { LAST, MAX_STEPS, STEP_KINDS, STEP_OUTCOMES, type StepCall } from "./steps.ts";

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
 * What was called from `from` on followed from them, and the next attempt may come by another way: it loses its place. Its
 * answers are kept, MAX_STEPS of a task at most, for calls of the same kind, name and occurrence (`adoptLoose`).
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
  db.rows(
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
  ), failed AS (
    SELECT child_run_id FROM forgotten WHERE outcome = ${STEP_OUTCOMES.FAILED}
  ), loose AS (
    SELECT count(*) AS count, coalesce(max(position), ${MAX_STEPS} - 1) AS last FROM step
    WHERE tenant_id = $1 AND task_id = $3 AND position >= ${MAX_STEPS}
  ), following AS (
    SELECT position, kind, name, occurrence, answered AND loose.count + n <= ${MAX_STEPS} AS kept, loose.last + n AS place
    FROM (
      SELECT position, kind, name, occurrence, outcome IN (${STEP_OUTCOMES.ANSWERED}, ${STEP_OUTCOMES.TIMED_OUT}) AS answered,
        row_number() OVER (ORDER BY position) AS n
      FROM step
      JOIN holder USING (task_id)
      WHERE step.tenant_id = $1 AND $6 > 0 AND position >= $6 AND position < ${MAX_STEPS} AND position <> ALL ($5::int[])
    ) AS called
    CROSS JOIN loose
  ), moved AS (
    UPDATE step
    SET position = following.place,
      renew = renew OR (step.kind = ${STEP_KINDS.CHILD} AND child_run_id IN (SELECT child_run_id FROM failed))
    FROM following
    WHERE step.tenant_id = $1 AND step.task_id = $3 AND step.position = following.position AND following.kept
  ), gone AS (
    DELETE FROM step
    USING following
    WHERE step.tenant_id = $1 AND step.task_id = $3 AND step.position = following.position AND NOT following.kept
  ), replaced AS (
    DELETE FROM step
    USING following
    WHERE step.tenant_id = $1 AND step.task_id = $3 AND step.position >= ${MAX_STEPS} AND step.kind = following.kind
      AND step.name = following.name AND step.occurrence = following.occurrence
  )
  UPDATE step SET renew = true
  WHERE tenant_id = $1 AND task_id = $3 AND kind = ${STEP_KINDS.CHILD} AND child_run_id IN (SELECT child_run_id FROM failed)
    AND ($6 = 0 OR position < $6 OR position >= ${MAX_STEPS})`,
    [p.tenantId, p.sessionId, p.taskId, p.fence, int4Array(p.positions), p.from],
  );

/**
 * Gives these calls the answers that lost their place with a failure, as if they were recorded now. The task's lease is
 * locked. Where a place is taken it stays as it is.
 */
export const adoptLoose = (db: Db, p: { tenantId: number; taskId: bigint; calls: readonly StepCall[] }) =>
  db.rows(
    "adopt_loose",
    `
  UPDATE step
  SET position = given.position, done = last.done + given.n::int, total_bytes = last.total_bytes, at = clock_timestamp()
  FROM unnest($3::int[], $4::smallint[], $5::text[], $6::int[]) WITH ORDINALITY
    AS given (position, kind, name, occurrence, n)
  CROSS JOIN (${LAST}) AS last
  WHERE step.tenant_id = $1 AND step.task_id = $2 AND step.position >= ${MAX_STEPS} AND step.kind = given.kind
    AND step.name = given.name AND step.occurrence = given.occurrence
    AND NOT EXISTS (
      SELECT FROM step AS taken
      WHERE taken.tenant_id = $1 AND taken.task_id = $2 AND taken.position = given.position
    )`,
    [
      p.tenantId,
      p.taskId,
      int4Array(p.calls.map((call) => call.position)),
      int2Array(p.calls.map((call) => call.kind)),
      p.calls.map((call) => call.name),
      int4Array(p.calls.map((call) => call.occurrence)),
    ],
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
