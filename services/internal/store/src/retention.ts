import type { Db } from "./db.ts";
import { type Duty, dutyParams, holdsDuty } from "./duties.ts";

/**
 * Whether a run is past its tenant's time: it has ended so long ago, and so has its parent, which may ask for it again.
 * `keep` is the parameter with the mesh's default in milliseconds, `grace` is added to today.
 */
const isOld = (keep: string, grace = "") => `(
      run.state >= 4 AND run.finished_at < ${cutoff("run", keep)}${grace}
      AND NOT EXISTS (
        SELECT FROM run AS parent
        WHERE parent.tenant_id = run.tenant_id AND parent.id = run.parent_run_id
          AND (parent.state < 4 OR parent.finished_at >= ${cutoff("run", keep)}${grace})
      )
    )`;

const cutoff = (table: string, keep: string) => `clock_timestamp() - coalesce(
        (SELECT keep_days * interval '1 day' FROM tenant_quota WHERE tenant_quota.tenant_id = ${table}.tenant_id),
        ${keep}::bigint * interval '1 ms')`;

/** Runs of a partition, as retention sees them. Reads the partition of runs, and no other table, whole. */
export const readPartitionFacts = (db: Db, p: { low: bigint; high: bigint; keepMs: number }) =>
  db.one<{ total: number; kept: number; lasting: number; is_settled: boolean; is_young: boolean }>(
    "read_partition_facts",
    `
  SELECT count(*)::int AS total,
    (count(*) FILTER (WHERE NOT is_old))::int AS kept,
    (count(*) FILTER (WHERE NOT is_old AND NOT is_soon_old))::int AS lasting,
    -- Ids are given out in blocks that rise, and a block is used for an hour at most.
    EXISTS (SELECT FROM run WHERE id >= $2 AND created_at < clock_timestamp() - interval '1 day') AS is_settled,
    count(*) > 0 AND min(created_at) >= clock_timestamp() - least(
      $3::bigint * interval '1 ms', (SELECT min(keep_days) * interval '1 day' FROM tenant_quota)) AS is_young
  FROM (
    SELECT run.created_at, ${isOld("$3")} AS is_old, ${isOld("$3", " + interval '1 day'")} AS is_soon_old
    FROM run
    WHERE run.id >= $1 AND run.id < $2
  ) AS seen`,
    [p.low, p.high, p.keepMs],
  );

export interface SweptRuns {
  readonly looked: number;
  readonly removed: number;
  readonly last_tenant: number | null;
  readonly last_id: bigint | null;
}

/**
 * Looks at the next `limit` runs of a partition after a key and removes those that are old; what hangs on them follows
 * by `removed_run`. A run that is reopened meanwhile stays: its row is looked at again under its lock.
 */
export const removeOldRuns = (
  db: Db,
  p: {
    duty: Duty;
    low: bigint;
    high: bigint;
    afterTenant: number;
    afterId: bigint;
    limit: number;
    keepMs: number;
  },
) =>
  db.one<SweptRuns>(
    "remove_old_runs",
    `
  WITH looked AS MATERIALIZED (
    SELECT tenant_id, id FROM run
    WHERE id >= $1 AND id < $2 AND (tenant_id, id) > ($3, $4)
    ORDER BY tenant_id, id
    LIMIT $5
  ), removed AS (
    DELETE FROM run
    USING looked
    WHERE run.tenant_id = looked.tenant_id AND run.id = looked.id AND run.id >= $1 AND run.id < $2
      AND ${isOld("$6")}
      AND ${holdsDuty(7)}
    RETURNING run.tenant_id, run.id
  ), noted AS (
    INSERT INTO removed_run (tenant_id, run_id)
    SELECT tenant_id, id FROM removed
  )
  SELECT (SELECT count(*)::int FROM looked) AS looked, (SELECT count(*)::int FROM removed) AS removed,
    last.tenant_id AS last_tenant, last.id AS last_id
  FROM (VALUES (1)) AS one
  LEFT JOIN LATERAL (SELECT tenant_id, id FROM looked ORDER BY tenant_id DESC, id DESC LIMIT 1) AS last ON true`,
    [p.low, p.high, p.afterTenant, p.afterId, p.limit, p.keepMs, ...dutyParams(p.duty)],
  );

/** Runs whose rows are not all gone, of every tenant. */
export const listRemovedRuns = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; run_id: bigint }>(
    "list_removed_runs",
    `
  SELECT tenant_id, run_id FROM removed_run
  ORDER BY tenant_id, run_id
  LIMIT $1`,
    [p.limit],
  );

export const forgetRemovedRun = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows(
    "forget_removed_run",
    `
  DELETE FROM removed_run
  WHERE tenant_id = $1 AND run_id = $2`,
    [p.tenantId, p.runId],
  );

interface RowsOfRun {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly limit: number;
}

const OF_RUN = "tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20";
const count = (removal: string) => `
  WITH gone AS (${removal}
    RETURNING 1
  )
  SELECT count(*)::int AS count FROM gone`;

/** Statements that remove about `limit` rows of a run that is gone, one for each table: whole tasks at a time. */
const REMOVALS = {
  remove_attempt_logs: count(`
    DELETE FROM attempt_log
    WHERE ${OF_RUN} AND task_id <= (
      SELECT max(task_id) FROM (SELECT task_id FROM attempt_log WHERE ${OF_RUN} ORDER BY task_id LIMIT $3) AS first)`),
  remove_steps: count(`
    DELETE FROM step
    WHERE ${OF_RUN} AND task_id <= (
      SELECT max(task_id) FROM (SELECT task_id FROM step WHERE ${OF_RUN} ORDER BY task_id LIMIT $3) AS first)`),
  remove_attempts: count(`
    DELETE FROM attempt
    WHERE ${OF_RUN} AND task_id <= (
      SELECT max(task_id) FROM (SELECT task_id FROM attempt WHERE ${OF_RUN} ORDER BY task_id LIMIT $3) AS first)`),
  remove_tasks: count(`
    DELETE FROM task
    WHERE tenant_id = $1 AND id >= $2::bigint << 20 AND id < ($2::bigint + 1) << 20 AND id <= (
      SELECT max(id) FROM (
        SELECT id FROM task
        WHERE tenant_id = $1 AND id >= $2::bigint << 20 AND id < ($2::bigint + 1) << 20
        ORDER BY id
        LIMIT $3
      ) AS first)`),
  remove_run_events: count(`
    DELETE FROM run_event
    WHERE tenant_id = $1 AND run_id = $2 AND sequence <= (
      SELECT max(sequence) FROM (
        SELECT sequence FROM run_event WHERE tenant_id = $1 AND run_id = $2 ORDER BY sequence LIMIT $3
      ) AS first)`),
  remove_signals: count(`
    DELETE FROM signal
    WHERE tenant_id = $1 AND run_id = $2 AND id <= (
      SELECT max(id) FROM (
        SELECT id FROM signal WHERE tenant_id = $1 AND run_id = $2 ORDER BY id LIMIT $3
      ) AS first)`),
} as const;

/** Removes a batch of what hangs on a run that is gone; answers how many rows, 0 when nothing is left. */
export async function removeRowsOfRun(db: Db, p: RowsOfRun): Promise<number> {
  for (const [name, text] of Object.entries(REMOVALS)) {
    const { count: removed } = await db.one<{ count: number }>(name, text, [p.tenantId, p.runId, p.limit]);
    if (removed > 0) return removed;
  }
  return 0;
}

export interface SweptKeys {
  readonly looked: number;
  readonly removed: number;
  readonly last_tenant: number | null;
  readonly last_workflow: number | null;
  readonly last_digest: string | null;
}

/** Looks at the next `limit` start keys after one, of every tenant, and removes those over 7 days whose run is gone. */
export const removeOldStartKeys = (
  db: Db,
  p: { duty: Duty; afterTenant: number; afterWorkflow: number; afterDigest: string; limit: number },
) =>
  db.one<SweptKeys>(
    "remove_old_start_keys",
    `
  WITH looked AS MATERIALIZED (
    SELECT tenant_id, workflow_id, digest, run_id, created_at FROM start_key
    WHERE (tenant_id, workflow_id, digest) > ($1, $2, $3::uuid)
    ORDER BY tenant_id, workflow_id, digest
    LIMIT $4
  ), removed AS (
    DELETE FROM start_key
    USING looked
    WHERE start_key.tenant_id = looked.tenant_id AND start_key.workflow_id = looked.workflow_id
      AND start_key.digest = looked.digest
      AND looked.created_at < clock_timestamp() - interval '7 days'
      AND NOT EXISTS (SELECT FROM run WHERE run.tenant_id = looked.tenant_id AND run.id = looked.run_id)
      AND ${holdsDuty(5)}
    RETURNING 1
  )
  SELECT (SELECT count(*)::int FROM looked) AS looked, (SELECT count(*)::int FROM removed) AS removed,
    last.tenant_id AS last_tenant, last.workflow_id AS last_workflow, last.digest AS last_digest
  FROM (VALUES (1)) AS one
  LEFT JOIN LATERAL (
    SELECT tenant_id, workflow_id, digest FROM looked
    ORDER BY tenant_id DESC, workflow_id DESC, digest DESC
    LIMIT 1
  ) AS last ON true`,
    [p.afterTenant, p.afterWorkflow, p.afterDigest, p.limit, ...dutyParams(p.duty)],
  );

/**
 * Removes worker sessions that no history names any more: closed before the oldest run of their tenant was created. At
 * most `limit` of each tenant.
 */
export const removeOldSessions = async (db: Db, p: { duty: Duty; limit: number; keepMs: number }): Promise<number> => {
  const row = await db.one<{ count: number }>(
    "remove_old_sessions",
    count(`
    DELETE FROM session
    USING tenant
    LEFT JOIN LATERAL (
      SELECT created_at FROM run WHERE run.tenant_id = tenant.id ORDER BY run.id LIMIT 1
    ) AS oldest ON true
    CROSS JOIN LATERAL (
      SELECT id FROM session AS old
      WHERE old.tenant_id = tenant.id AND old.closed_at IS NOT NULL
      ORDER BY old.id
      LIMIT $1
    ) AS looked
    WHERE session.tenant_id = tenant.id AND session.id = looked.id
      AND session.closed_at < coalesce(oldest.created_at, 'infinity')
      AND session.closed_at < clock_timestamp() - $2::bigint * interval '1 ms'
      AND NOT EXISTS (SELECT FROM lease WHERE lease.session_id = session.id)
      AND ${holdsDuty(3)}`),
    [p.limit, p.keepMs, ...dutyParams(p.duty)],
  );
  return row.count;
};
