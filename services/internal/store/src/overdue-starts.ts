import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { LeaseRow } from "./leases.ts";

/** Its handler has started, and was woken since. */
const WAS_SUSPENDED = `ready.attempt > 0 AND EXISTS (
      SELECT FROM attempt
      WHERE attempt.tenant_id = ready.tenant_id AND attempt.task_id = ready.task_id AND attempt.outcome = 7
    )`;

/**
 * Ready tasks past schedule-to-start, of every tenant: only routes that have one are looked at. It ends with the first
 * start: a task that failed or was lost after one waits as long as it must.
 */
export const listOverdueStarts = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; task_id: bigint }>(
    "list_overdue_starts",
    `
  SELECT overdue.tenant_id, overdue.task_id
  FROM route
  CROSS JOIN LATERAL (
    SELECT ready.tenant_id, ready.task_id FROM ready
    WHERE ready.route_id = route.id AND ready.failures = 0 AND ready.losses = 0 AND NOT (${WAS_SUSPENDED})
      AND ready.ready_at < clock_timestamp() - route.schedule_to_start_ms * interval '1 ms'
    LIMIT $1
  ) AS overdue
  WHERE route.schedule_to_start_ms > 0
  ORDER BY overdue.tenant_id, overdue.task_id
  LIMIT $1`,
    [p.limit],
  );

/**
 * Takes overdue tasks out of ready, under their run's lock, as leases that never were: history keeps the time-out as an
 * attempt of no worker, with a fence of its own. One that was claimed meanwhile is not there any more.
 */
export const takeOverdueStarts = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<LeaseRow>(
    "take_overdue_starts",
    `
  WITH taken AS (
    DELETE FROM ready
    USING route
    WHERE ready.tenant_id = $1 AND ready.task_id = ANY ($2::bigint[]) AND route.id = ready.route_id
      AND ready.failures = 0 AND ready.losses = 0 AND NOT (${WAS_SUSPENDED})
      AND ready.ready_at < clock_timestamp() - route.schedule_to_start_ms * interval '1 ms'
    RETURNING ready.task_id, ready.route_id, ready.rank, ready.attempt, ready.failures, ready.losses, ready.ready_at
  )
  SELECT task_id, nextval('fence') AS fence, 0::bigint AS session_id, route_id, rank, attempt + 1 AS attempt, failures,
    losses, ready_at AS leased_at, NULL::timestamptz AS started_at, clock_timestamp() AS expires_at,
    0::float8 AS remaining_ms, NULL::bytea AS progress
  FROM taken
  ORDER BY task_id`,
    [p.tenantId, int8Array(p.taskIds)],
  );
