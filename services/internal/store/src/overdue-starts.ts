import { EVENT_TYPES } from "@runmesh/domain/states";
import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { LeaseRow } from "./leases.ts";

/**
 * Schedule-to-start: the time from when a task became ready until its handler first started. Invariants:
 *   1. It counts through leases that ended before their start: what is given back, or lost so, is ready since it was.
 *   2. It ends with the first start, for good: a task that failed, was lost after its start, or was suspended and woken
 *      waits as long as it must. A retry or replay of the run begins it anew.
 *   3. A task under a lease is overdue only when a renewal came a whole length of the lease after its time was over and
 *      told of no start: a start is told a moment late, and after an outage later.
 */

/** Its handler has started since the run was last opened; `least` attempts or fewer had none before. */
const wasStarted = (place: "ready" | "lease", least: number) => `${place}.attempt > ${least} AND EXISTS (
      SELECT FROM attempt
      WHERE attempt.tenant_id = ${place}.tenant_id AND attempt.task_id = ${place}.task_id
        AND attempt.started_at IS NOT NULL AND NOT EXISTS (
          SELECT FROM run_event
          WHERE run_event.tenant_id = attempt.tenant_id AND run_event.run_id = attempt.task_id >> 20
            AND run_event.type IN (${EVENT_TYPES.RUN_RETRIED}, ${EVENT_TYPES.TASK_REPLAYED})
            AND run_event.at > attempt.ended_at
        )
    )`;

const READY_IS_OVERDUE = `ready.failures = 0 AND ready.losses = 0 AND NOT (${wasStarted("ready", 0)})
      AND ready.ready_at < clock_timestamp() - route.schedule_to_start_ms * interval '1 ms'`;

/** A lease is renewed until a length after the renewal. */
const LEASE_IS_OVERDUE = `route.schedule_to_start_ms > 0 AND lease.started_at IS NULL
    AND lease.failures = 0 AND lease.losses = 0
    AND lease.expires_at > lease.ready_at + (route.schedule_to_start_ms + 2 * session.lease_ms) * interval '1 ms'
    AND NOT (${wasStarted("lease", 1)})`;

/** Ready tasks past schedule-to-start, of every tenant: only routes that have one are looked at. */
export const listOverdueStarts = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; task_id: bigint }>(
    "list_overdue_starts",
    `
  SELECT overdue.tenant_id, overdue.task_id
  FROM route
  CROSS JOIN LATERAL (
    SELECT ready.tenant_id, ready.task_id FROM ready
    WHERE ready.route_id = route.id AND ${READY_IS_OVERDUE}
    LIMIT $1
  ) AS overdue
  WHERE route.schedule_to_start_ms > 0
  ORDER BY overdue.tenant_id, overdue.task_id
  LIMIT $1`,
    [p.limit],
  );

/** Leased tasks past schedule-to-start, of every tenant. The table of leases is small, and is read whole. */
export const listOverdueLeases = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; task_id: bigint }>(
    "list_overdue_leases",
    `
  SELECT lease.tenant_id, lease.task_id
  FROM lease
  JOIN route ON route.id = lease.route_id
  JOIN session ON session.tenant_id = lease.tenant_id AND session.id = lease.session_id
  WHERE ${LEASE_IS_OVERDUE}
  ORDER BY lease.tenant_id, lease.task_id
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
      AND ${READY_IS_OVERDUE}
    RETURNING ready.task_id, ready.route_id, ready.rank, ready.attempt, ready.failures, ready.losses, ready.ready_at
  )
  SELECT task_id, nextval('fence') AS fence, 0::bigint AS session_id, route_id, rank, attempt + 1 AS attempt, failures,
    losses, ready_at, ready_at AS leased_at, NULL::timestamptz AS started_at, clock_timestamp() AS expires_at,
    0::float8 AS remaining_ms, NULL::bytea AS progress
  FROM taken
  ORDER BY task_id`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** Locks the leases of tasks that are still overdue, under their run's lock. */
export const lockOverdueLeases = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<LeaseRow>(
    "lock_overdue_leases",
    `
  SELECT lease.task_id, lease.fence, lease.session_id, lease.route_id, lease.rank, lease.attempt, lease.failures,
    lease.losses, lease.ready_at, lease.leased_at, lease.started_at, lease.expires_at, lease.progress,
    ceil(extract(epoch FROM lease.expires_at - clock_timestamp()) * 1000)::float8 AS remaining_ms
  FROM lease
  JOIN route ON route.id = lease.route_id
  JOIN session ON session.tenant_id = lease.tenant_id AND session.id = lease.session_id
  WHERE lease.tenant_id = $1 AND lease.task_id = ANY ($2::bigint[]) AND ${LEASE_IS_OVERDUE}
  ORDER BY lease.task_id
  FOR UPDATE OF lease`,
    [p.tenantId, int8Array(p.taskIds)],
  );
