import { int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { MAX_POSITION, MAX_STEPS, STEP_KINDS, STEP_OUTCOMES } from "./steps.ts";

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
