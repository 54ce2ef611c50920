import { int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** Writes the ends that are not an attempt's: DEAD, CANCELLED or SKIPPED. */
export const endTasks = (db: Db, p: { tenantId: number; taskIds: readonly bigint[]; state: number }) =>
  db.rows<{ id: bigint }>(
    "end_tasks",
    `
  UPDATE task SET state = $3
  WHERE tenant_id = $1 AND id = ANY ($2::bigint[])
  RETURNING id`,
    [p.tenantId, int8Array(p.taskIds), p.state],
  );

/** Writes pending and unsuccessful counts, as the plan gives them under the run's lock. */
export const setPending = (
  db: Db,
  p: { tenantId: number; taskIds: readonly bigint[]; pending: readonly number[]; unsuccessful: readonly number[] },
) =>
  db.rows(
    "set_pending",
    `
  UPDATE task SET pending = wanted.pending, unsuccessful = wanted.unsuccessful
  FROM unnest($2::bigint[], $3::int[], $4::int[]) AS wanted (id, pending, unsuccessful)
  WHERE task.tenant_id = $1 AND task.id = wanted.id`,
    [p.tenantId, int8Array(p.taskIds), int4Array(p.pending), int4Array(p.unsuccessful)],
  );

/** Counts dependencies that have ended off tasks that wait for them: `by` for each. */
export const countDown = (
  db: Db,
  p: { tenantId: number; taskIds: readonly bigint[]; by: readonly number[]; unsuccessful: readonly number[] },
) =>
  db.rows<{ id: bigint; pending: number; state: number }>(
    "count_down",
    `
  UPDATE task SET pending = task.pending - wanted.by, unsuccessful = task.unsuccessful + wanted.unsuccessful
  FROM unnest($2::bigint[], $3::int[], $4::int[]) AS wanted (id, by, unsuccessful)
  WHERE task.tenant_id = $1 AND task.id = wanted.id
  RETURNING task.id, task.pending, task.state`,
    [p.tenantId, int8Array(p.taskIds), int4Array(p.by), int4Array(p.unsuccessful)],
  );

/** Writes states and counts that a retry or replay derived anew, under the run's lock. */
export const reopenTasks = (
  db: Db,
  p: {
    tenantId: number;
    taskIds: readonly bigint[];
    pending: readonly number[];
    unsuccessful: readonly number[];
    states: readonly number[];
  },
) =>
  db.rows(
    "reopen_tasks",
    `
  UPDATE task SET pending = wanted.pending, unsuccessful = wanted.unsuccessful, state = wanted.state
  FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[]) AS wanted (id, pending, unsuccessful, state)
  WHERE task.tenant_id = $1 AND task.id = wanted.id`,
    [p.tenantId, int8Array(p.taskIds), int4Array(p.pending), int4Array(p.unsuccessful), int4Array(p.states)],
  );
