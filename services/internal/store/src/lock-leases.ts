import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { LeaseKey, LeaseRow } from "./leases.ts";

const COLUMNS = `task_id, fence, session_id, route_id, rank, attempt, failures, losses, ready_at, leased_at, started_at,
  expires_at, progress`;

const keys = (leases: readonly LeaseKey[]) => [
  int8Array(leases.map((lease) => lease.taskId)),
  int8Array(leases.map((lease) => lease.fence)),
];

const lockText = (condition: string): string => `
  SELECT lease.task_id, lease.fence, lease.session_id, lease.route_id, lease.rank, lease.attempt, lease.failures,
    lease.losses, lease.ready_at, lease.leased_at, lease.started_at, lease.expires_at, lease.progress,
    ceil(extract(epoch FROM lease.expires_at - clock_timestamp()) * 1000)::float8 AS remaining_ms
  FROM unnest($2::bigint[], $3::bigint[]) AS named (task_id, fence)
  CROSS JOIN LATERAL (
    SELECT ${COLUMNS} FROM lease
    WHERE tenant_id = $1 AND task_id = named.task_id AND fence = named.fence AND ${condition}
    FOR UPDATE
    OFFSET 0
  ) AS lease`;

/** Locks leases that a session holds and that are unexpired, in the order given (ascending by task). */
export const lockHeldLeases = (db: Db, p: { tenantId: number; sessionId: bigint; leases: readonly LeaseKey[] }) =>
  db.rows<LeaseRow>("lock_held_leases", lockText("session_id = $4 AND expires_at > clock_timestamp()"), [
    p.tenantId,
    ...keys(p.leases),
    p.sessionId,
  ]);

/** Locks leases whose time is still over: a renewal may have come between. */
export const lockDueLeases = (db: Db, p: { tenantId: number; leases: readonly LeaseKey[] }) =>
  db.rows<LeaseRow>(
    "lock_due_leases",
    lockText("(expires_at <= clock_timestamp() OR close_by <= clock_timestamp() OR beat_by <= clock_timestamp())"),
    [p.tenantId, ...keys(p.leases)],
  );

/** Ends leases that are locked. */
export const deleteLeases = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows(
    "delete_leases",
    `
  DELETE FROM lease
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** Locks and answers leases of a run, all or some, whoever holds them: the run's lock is held. */
export const lockRunLeases = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows<LeaseRow>(
    "lock_run_leases",
    `
  SELECT ${COLUMNS}, ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS remaining_ms
  FROM lease
  WHERE tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20
  ORDER BY task_id
  FOR UPDATE`,
    [p.tenantId, p.runId],
  );
