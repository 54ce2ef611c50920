import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export interface LeaseKey {
  readonly taskId: bigint;
  readonly fence: bigint;
}

export interface LeaseRow {
  task_id: bigint;
  fence: bigint;
  session_id: bigint;
  route_id: number;
  rank: number;
  attempt: number;
  failures: number;
  losses: number;
  /** Since when the task is ready without a start between: schedule-to-start counts from it. */
  ready_at: Date | null;
  leased_at: Date;
  started_at: Date | null;
  expires_at: Date;
  /** Until the expiry, by the database's clock. */
  remaining_ms: number;
  progress: Buffer | null;
}

interface Named {
  readonly tenantId: number;
  readonly sessionId: bigint;
  readonly leases: readonly LeaseKey[];
}

const keys = (p: Named) => [
  p.tenantId,
  p.sessionId,
  int8Array(p.leases.map((lease) => lease.taskId)),
  int8Array(p.leases.map((lease) => lease.fence)),
];

/**
 * Extends the leases a worker names (G1, G4). One that does not come back is lost: the worker aborts it.
 * Rows are locked in the order of their key, as every statement over many leases does.
 */
export const renewLeases = (db: Db, p: Named & { leaseMs: number }) =>
  db.rows<{ task_id: bigint; expires_at: Date }>(
    "renew_leases",
    `
  WITH held AS MATERIALIZED (
    SELECT lease.task_id, lease.fence
    FROM unnest($3::bigint[], $4::bigint[]) AS named (task_id, fence)
    CROSS JOIN LATERAL (
      SELECT task_id, fence FROM lease
      WHERE tenant_id = $1 AND task_id = named.task_id AND fence = named.fence AND session_id = $2
        AND expires_at > clock_timestamp()
      FOR NO KEY UPDATE
      OFFSET 0
    ) AS lease
  )
  UPDATE lease SET expires_at = clock_timestamp() + $5::int * interval '1 ms'
  WHERE tenant_id = $1 AND task_id = ANY (ARRAY(SELECT task_id FROM held))
    AND session_id = $2 AND expires_at > clock_timestamp()
  RETURNING task_id, expires_at`,
    [...keys(p), p.leaseMs],
  );

/** Notes that handlers run: start-to-close and heartbeat count from now. Told again, it changes nothing. */
export const startLeases = (db: Db, p: Named) =>
  db.rows<{ task_id: bigint; fence: bigint }>(
    "start_leases",
    `
  UPDATE lease
  SET started_at = clock_timestamp(),
    close_by = CASE WHEN route.start_to_close_ms > 0
      THEN clock_timestamp() + route.start_to_close_ms * interval '1 ms' END,
    beat_by = CASE WHEN route.heartbeat_ms > 0 THEN clock_timestamp() + route.heartbeat_ms * interval '1 ms' END
  FROM unnest($3::bigint[], $4::bigint[]) AS named (task_id, fence), route
  WHERE lease.tenant_id = $1 AND lease.session_id = $2
    AND lease.task_id = named.task_id AND lease.fence = named.fence
    AND lease.started_at IS NULL AND lease.expires_at > clock_timestamp()
    AND route.id = lease.route_id
  RETURNING lease.task_id, lease.fence`,
    keys(p),
  );

/** Those of the leases named that live and whose handlers run. */
export const findStartedLeases = (db: Db, p: Named) =>
  db.rows<{ task_id: bigint; fence: bigint }>(
    "find_started_leases",
    `
  SELECT lease.task_id, lease.fence
  FROM unnest($3::bigint[], $4::bigint[]) AS named (task_id, fence)
  CROSS JOIN LATERAL (
    SELECT task_id, fence FROM lease
    WHERE tenant_id = $1 AND task_id = named.task_id AND fence = named.fence AND session_id = $2
      AND started_at IS NOT NULL AND expires_at > clock_timestamp()
    OFFSET 0
  ) AS lease`,
    keys(p),
  );

/** Keeps the last progress, and puts off the heartbeat's end. */
export const keepProgress = (db: Db, p: Named & { progress: readonly Buffer[] }) =>
  db.rows<{ task_id: bigint }>(
    "keep_progress",
    `
  UPDATE lease
  SET progress = named.progress,
    beat_by = CASE WHEN lease.beat_by IS NOT NULL
      THEN clock_timestamp() + route.heartbeat_ms * interval '1 ms' END
  FROM unnest($3::bigint[], $4::bigint[], $5::bytea[]) AS named (task_id, fence, progress), route
  WHERE lease.tenant_id = $1 AND lease.session_id = $2
    AND lease.task_id = named.task_id AND lease.fence = named.fence
    AND lease.expires_at > clock_timestamp()
    AND route.id = lease.route_id
  RETURNING lease.task_id`,
    [...keys(p), p.progress],
  );

/**
 * Everything the session holds by the database; `is_young` where it was leased within the last `youngMs`. By the index
 * of sessions, which its predicate opens, and not by the key of all the tenant's leases, which the sum hides.
 */
export const listSessionLeases = (db: Db, p: { tenantId: number; sessionId: bigint; youngMs: number }) =>
  db.rows<{ task_id: bigint; fence: bigint; is_young: boolean }>(
    "list_session_leases",
    `
  SELECT task_id, fence, leased_at > clock_timestamp() - $3::int * interval '1 ms' AS is_young FROM lease
  WHERE session_id = $2 AND session_id > 0 AND tenant_id + 0 = $1`,
    [p.tenantId, p.sessionId, p.youngMs],
  );

export interface DueLease {
  tenant_id: number;
  task_id: bigint;
  fence: bigint;
  session_id: bigint;
  outcome: "LOST" | "TIMED_OUT";
  /** `close_by` or `beat_by` that was passed; none for an expiry. */
  passed: "start_to_close" | "heartbeat" | null;
}

/**
 * Leases whose time is over, in every tenant: the reaper's list. The table is small, so it is scanned and has no index
 * on the expiry: renewals stay HOT.
 */
export const listDueLeases = (db: Db, p: { limit: number }) =>
  db.rows<DueLease>(
    "list_due_leases",
    `
  SELECT tenant_id, task_id, fence, session_id,
    CASE WHEN close_by <= clock_timestamp() OR beat_by <= clock_timestamp() THEN 'TIMED_OUT' ELSE 'LOST' END AS outcome,
    CASE WHEN close_by <= clock_timestamp() THEN 'start_to_close' WHEN beat_by <= clock_timestamp() THEN 'heartbeat' END
      AS passed
  FROM lease
  WHERE expires_at <= clock_timestamp() OR close_by <= clock_timestamp() OR beat_by <= clock_timestamp()
  ORDER BY tenant_id, task_id
  LIMIT $1`,
    [p.limit],
  );

/**
 * The database's clock, and since when leases are overdue that a reaper at work would have ended by now. Fails where
 * the database can only be read.
 */
export const lookForOutage = (db: Db) =>
  db.one<{ now: Date; overdue_since: Date | null }>(
    "look_for_outage",
    `
  WITH may_write AS (
    UPDATE lease SET expires_at = expires_at WHERE false
  )
  SELECT clock_timestamp() AS now,
    (SELECT min(expires_at) FROM lease WHERE expires_at < clock_timestamp() - interval '1500 ms') AS overdue_since`,
    [],
  );

/**
 * After an outage of the database: leases that lived when it was last seen, and for which it was longer than a third of
 * their length, get time for one renewal before expiry goes on, and what could not be told in time another chance (G4).
 */
export const extendLiveLeases = (db: Db, p: { aliveAt: Date; outageMs: number }) =>
  db.rows(
    "extend_live_leases",
    `
  UPDATE lease
  SET expires_at = greatest(lease.expires_at, grace.until),
    close_by = CASE WHEN lease.close_by > $1 THEN greatest(lease.close_by, grace.until) ELSE lease.close_by END,
    beat_by = CASE WHEN lease.beat_by > $1 THEN greatest(lease.beat_by, grace.until) ELSE lease.beat_by END
  FROM session
  CROSS JOIN LATERAL (
    SELECT clock_timestamp() + greatest(session.lease_ms / 3, 2000) * interval '1 ms' AS until
  ) AS grace
  WHERE session.tenant_id = lease.tenant_id AND session.id = lease.session_id
    AND session.lease_ms / 3 < $2::int AND lease.expires_at > $1`,
    [p.aliveAt, p.outageMs],
  );

export interface ExplainedLease {
  task_id: bigint;
  fence: bigint;
  succeeded: boolean | null;
  lease_fence: bigint | null;
  run_state: number | null;
  /** The outcome of the lease that was named, where it has ended. */
  outcome: number | null;
}

/** Why completions were refused: what stands where a lease was named. */
export const explainLeases = (db: Db, p: Named) =>
  db.rows<ExplainedLease>(
    "explain_leases",
    `
  SELECT named.task_id, named.fence,
    (SELECT attempt.outcome = 1 FROM attempt
      WHERE attempt.tenant_id = $1 AND attempt.task_id = named.task_id AND attempt.fence = named.fence
        AND attempt.session_id = $2) AS succeeded,
    (SELECT lease.fence FROM lease
      WHERE lease.tenant_id = $1 AND lease.task_id = named.task_id AND lease.session_id = $2) AS lease_fence,
    (SELECT attempt.outcome FROM attempt
      WHERE attempt.tenant_id = $1 AND attempt.task_id = named.task_id AND attempt.fence = named.fence
        AND attempt.session_id = $2) AS outcome,
    run.state AS run_state
  FROM unnest($3::bigint[], $4::bigint[]) AS named (task_id, fence)
  LEFT JOIN LATERAL (
    SELECT state FROM run WHERE tenant_id = $1 AND id = named.task_id >> 20 OFFSET 0
  ) AS run ON true`,
    keys(p),
  );
