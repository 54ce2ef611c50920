import type { Db } from "./db.ts";
import { TIMER_KINDS } from "./run-timers.ts";

/**
 * Child runs that nobody will ask for: the task that started them ended DEAD, CANCELLED or SKIPPED, its whole run was
 * cancelled or timed out, or its handler's record of them was forgotten. Those that a task left open when it succeeded go
 * on, as its handler meant it. A retry opens the task again and starts another child in the place of a cancelled one.
 */
const STRAY = `child.state IN (1, 2, 3) AND NOT child.detached
    AND (parent.state IN (6, 7) OR EXISTS (
      SELECT FROM task
      WHERE task.tenant_id = child.tenant_id AND task.id = child.parent_task_id AND task.state <> 0
    ) OR NOT EXISTS (
      SELECT FROM step
      WHERE step.tenant_id = child.tenant_id AND step.task_id = child.parent_task_id AND step.child_run_id = child.id
    ))`;

const CHILDREN = `FROM run AS child
  JOIN run AS parent ON parent.tenant_id = child.tenant_id AND parent.id = child.parent_run_id
  WHERE child.tenant_id = $1 AND child.parent_run_id = $2`;

/** Those of a run, by id. */
export const listStrayChildren = (db: Db, p: { tenantId: number; runId: bigint; afterId: bigint; limit: number }) =>
  db.rows<{ id: bigint }>(
    "list_stray_children",
    `
  SELECT child.id
  ${CHILDREN} AND child.id > $3
    AND ${STRAY}
  ORDER BY child.id
  LIMIT $4`,
    [p.tenantId, p.runId, p.afterId, p.limit],
  );

/** Has the stray children of a run follow it at once, where it has any. */
export const haveChildrenFollow = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows(
    "have_children_follow",
    `
  INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
  SELECT $1, $2, ${TIMER_KINDS.CHILDREN}, clock_timestamp()
  WHERE EXISTS (
    SELECT
    ${CHILDREN} AND ${STRAY}
  )
  ON CONFLICT (tenant_id, run_id, kind) DO UPDATE SET due_at = excluded.due_at`,
    [p.tenantId, p.runId],
  );

/** Ends what `haveChildrenFollow` began, unless it was begun anew since the timer was read. */
export const endChildrenTimer = (db: Db, p: { tenantId: number; runId: bigint; due: string }) =>
  db.rows(
    "end_children_timer",
    `
  DELETE FROM run_timer
  WHERE tenant_id = $1 AND run_id = $2 AND kind = ${TIMER_KINDS.CHILDREN} AND due_at = $3::timestamptz`,
    [p.tenantId, p.runId, p.due],
  );

/**
 * Whether a child, which is locked, is stray, and stays it until this commits: a retry of the parent waits for the lock
 * of the task, and then sees what became of the child. One that holds the task already is not waited for.
 */
export async function holdStray(
  db: Db,
  p: { tenantId: number; runId: bigint; parentTaskId: bigint },
): Promise<boolean> {
  const task = await db.find<{ id: bigint }>(
    "hold_ended_task",
    `
  SELECT id FROM task
  WHERE tenant_id = $1 AND id = $2 AND state <> 0
  FOR SHARE SKIP LOCKED`,
    [p.tenantId, p.parentTaskId],
  );
  if (task !== undefined) return true;
  const left = await db.find<{ id: bigint }>(
    "find_left_child",
    `
  SELECT child.id FROM run AS child
  JOIN run AS parent ON parent.tenant_id = child.tenant_id AND parent.id = child.parent_run_id
  WHERE child.tenant_id = $1 AND child.id = $2 AND ${STRAY}
    AND NOT EXISTS (SELECT FROM task WHERE tenant_id = $1 AND id = $3 AND state <> 0)`,
    [p.tenantId, p.runId, p.parentTaskId],
  );
  return left !== undefined;
}
