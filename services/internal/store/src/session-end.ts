import type { Db } from "./db.ts";
import type { LeaseRow } from "./leases.ts";

/** Leases of a session that may be ended early: those of `exclusive` tasks wait for their expiry. */
export const listEndableLeases = (db: Db, p: { tenantId: number; sessionId: bigint; epoch: number }) =>
  db.rows<{ task_id: bigint; fence: bigint }>(
    "list_endable_leases",
    `
  SELECT lease.task_id, lease.fence
  FROM lease
  JOIN route ON route.id = lease.route_id
  JOIN session ON session.tenant_id = lease.tenant_id AND session.id = lease.session_id
  WHERE lease.session_id = $2 AND lease.session_id > 0 AND lease.tenant_id = $1 AND session.epoch = $3 AND NOT route.exclusive
  ORDER BY lease.task_id`,
    [p.tenantId, p.sessionId, p.epoch],
  );

/** Locks leases of a run that a session holds, as long as it was not attached again: then its epoch is another. */
export const lockEpochLeases = (db: Db, p: { tenantId: number; sessionId: bigint; epoch: number; runId: bigint }) =>
  db.rows<LeaseRow>(
    "lock_epoch_leases",
    `
  SELECT lease.task_id, lease.fence, lease.session_id, lease.route_id, lease.rank, lease.attempt, lease.failures,
    lease.losses, lease.leased_at, lease.started_at, lease.expires_at, lease.progress,
    ceil(extract(epoch FROM lease.expires_at - clock_timestamp()) * 1000)::float8 AS remaining_ms
  FROM lease
  JOIN route ON route.id = lease.route_id
  WHERE lease.tenant_id = $1 AND lease.session_id = $2
    AND lease.task_id >= $4::bigint << 20 AND lease.task_id < ($4::bigint + 1) << 20
    AND NOT route.exclusive
    AND EXISTS (
      SELECT FROM session
      WHERE session.tenant_id = $1 AND session.id = $2 AND session.epoch = $3 AND session.closed_at IS NULL
    )
  ORDER BY lease.task_id
  FOR UPDATE OF lease`,
    [p.tenantId, p.sessionId, p.epoch, p.runId],
  );
