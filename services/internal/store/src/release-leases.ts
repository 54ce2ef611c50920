import { ATTEMPT_OUTCOMES } from "@runmesh/domain/states";
import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { LeaseKey } from "./leases.ts";
import { settleSlots } from "./slot-counts.ts";

/**
 * Gives leases of a session back without burning an attempt, whether or not they have expired: ahead of the backlog of
 * their priority, or held where the run is paused. One that never started is ready since it was before. A move back
 * holds its run's lock. Answers what was given back.
 */
export async function releaseLeases(
  db: Db,
  p: { tenantId: number; sessionId: bigint; leases: readonly LeaseKey[] },
): Promise<{ taskIds: ReadonlySet<bigint>; routeIds: ReadonlySet<number> }> {
  const leases = [...p.leases].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const runIds = [...new Set(leases.map((lease) => lease.taskId >> 20n))];
  const rows = await db.rows<{ task_id: bigint; route_id: number }>("release_leases", RELEASE_LEASES, [
    p.tenantId,
    p.sessionId,
    int8Array(leases.map((lease) => lease.taskId)),
    int8Array(leases.map((lease) => lease.fence)),
    int8Array(runIds),
  ]);
  return {
    taskIds: new Set(rows.map((row) => row.task_id)),
    routeIds: new Set(rows.map((row) => row.route_id)),
  };
}

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";

/** The sum hides the key of slots, which begins with the tenant, so that they are found by their task. */
const RELEASE_LEASES = `
  WITH locked AS MATERIALIZED (
    SELECT run.id, run.state
    FROM unnest($5::bigint[]) AS named (run_id)
    CROSS JOIN LATERAL (
      SELECT id, state FROM run
      WHERE tenant_id = $1 AND id = named.run_id AND state IN (2, 3)
      FOR NO KEY UPDATE
      OFFSET 0
    ) AS run
  ), active AS MATERIALIZED (
    SELECT coalesce(array_agg(id), '{}') AS run_ids, coalesce(array_agg(id) FILTER (WHERE state = 3), '{}') AS paused_ids
    FROM locked
  ), ended AS (
    DELETE FROM lease
    WHERE tenant_id = $1 AND session_id = $2 AND task_id = ANY ($3::bigint[])
      AND fence = ($4::bigint[])[width_bucket(task_id, $3::bigint[])]
      AND task_id >> 20 = ANY ((SELECT run_ids FROM active)::bigint[])
    RETURNING task_id, fence, route_id, rank + (rank & 1::smallint) - 1 AS rank, attempt, failures, losses, leased_at,
      started_at, progress, CASE WHEN started_at IS NULL THEN ready_at END AS ready_at,
      task_id >> 20 = ANY ((SELECT paused_ids FROM active)::bigint[]) AS is_paused
  ), attempts AS (
    INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, started_at, ended_at, outcome,
      sequence, progress)
    SELECT $1, task_id, fence, attempt, $2, leased_at, started_at, clock_timestamp(), ${ATTEMPT_OUTCOMES.RELEASED}, 0,
      progress
    FROM ended
  ), freed AS (
    DELETE FROM slot
    WHERE tenant_id + 0 = $1 AND task_id = ANY (ARRAY(SELECT task_id FROM ended WHERE is_paused))
    RETURNING key
  ),${settleSlots("SELECT key, 1, NULL::bigint, NULL::int FROM freed")}, waiting AS (
    INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at, limited)
    SELECT $1, ${TASK_COLUMNS}, 1, coalesce(ready_at, clock_timestamp()),
      EXISTS (SELECT FROM slot WHERE slot.tenant_id + 0 = $1 AND slot.task_id = ended.task_id)
    FROM ended WHERE is_paused
  ), woken AS (
    INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
    SELECT $1, ${TASK_COLUMNS}, coalesce(ready_at, clock_timestamp()) FROM ended WHERE NOT is_paused
  )
  SELECT task_id, route_id FROM ended`;
