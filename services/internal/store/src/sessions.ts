import type { Db } from "./db.ts";

export interface SessionRow {
  id: bigint;
  name: string;
  handlers: string[];
  queues: string[];
  capabilities: string[];
  slots: number;
  lease_ms: number;
  epoch: number;
  created_at: Date;
  seen_at: Date;
}

const COLUMNS = "id, name, handlers, queues, capabilities, slots, lease_ms, epoch, created_at, seen_at";

export const insertSession = (
  db: Db,
  p: {
    tenantId: number;
    tokenHash: Buffer;
    name: string;
    handlers: readonly string[];
    queues: readonly string[];
    capabilities: readonly string[];
    slots: number;
    leaseMs: number;
  },
) =>
  db.one<SessionRow>(
    "insert_session",
    `
  INSERT INTO session (tenant_id, token_hash, name, handlers, queues, capabilities, slots, lease_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.tokenHash, p.name, p.handlers, p.queues, p.capabilities, p.slots, p.leaseMs],
  );

/** Takes an open session up again with a new epoch; nothing where the token is another's or the session is closed. */
export const resumeSession = (
  db: Db,
  p: {
    tenantId: number;
    sessionId: bigint;
    tokenHash: Buffer;
    handlers: readonly string[];
    queues: readonly string[];
    capabilities: readonly string[];
    slots: number;
  },
) =>
  db.find<SessionRow>(
    "resume_session",
    `
  UPDATE session
  SET epoch = epoch + 1, seen_at = clock_timestamp(), handlers = $4, queues = $5, capabilities = $6, slots = $7
  WHERE tenant_id = $1 AND id = $2 AND token_hash = $3 AND closed_at IS NULL
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.sessionId, p.tokenHash, p.handlers, p.queues, p.capabilities, p.slots],
  );

/** An open session, by its token. */
export const findSession = (db: Db, p: { tenantId: number; sessionId: bigint; tokenHash: Buffer }) =>
  db.find<SessionRow>(
    "find_session",
    `
  SELECT ${COLUMNS} FROM session
  WHERE tenant_id = $1 AND id = $2 AND token_hash = $3 AND closed_at IS NULL`,
    [p.tenantId, p.sessionId, p.tokenHash],
  );

export const touchSession = (db: Db, p: { tenantId: number; sessionId: bigint }) =>
  db.find<{ epoch: number }>(
    "touch_session",
    `
  UPDATE session SET seen_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2 AND closed_at IS NULL
  RETURNING epoch`,
    [p.tenantId, p.sessionId],
  );

/** Closes a session that nobody attached again and that holds nothing more. */
export const closeSession = (db: Db, p: { tenantId: number; sessionId: bigint; epoch: number }) =>
  db.find<{ id: bigint }>(
    "close_session",
    `
  UPDATE session SET closed_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2 AND epoch = $3 AND closed_at IS NULL
    AND NOT EXISTS (SELECT FROM lease WHERE lease.session_id = $2 AND lease.session_id > 0 AND lease.tenant_id = $1)
  RETURNING id`,
    [p.tenantId, p.sessionId, p.epoch],
  );

/**
 * Closes sessions that were not seen for so long that none of their leases can live, of every tenant.
 * Their rows stay: history names their workers.
 */
export const closeStaleSessions = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; id: bigint }>(
    "close_stale_sessions",
    `
  UPDATE session SET closed_at = clock_timestamp()
  WHERE (tenant_id, id) IN (
    SELECT tenant_id, id FROM session
    WHERE closed_at IS NULL AND seen_at < clock_timestamp() - greatest(lease_ms * 4, 120000) * interval '1 ms'
    LIMIT $1
    FOR UPDATE SKIP LOCKED
  )
  RETURNING tenant_id, id`,
    [p.limit],
  );

/** Sessions open, or seen within the last minute, newest first, below `beforeId`. */
export const listSessions = (db: Db, p: { tenantId: number; beforeId: bigint; limit: number }) =>
  db.rows<SessionRow & { leased_count: number; is_recent: boolean }>(
    "list_sessions",
    `
  SELECT session.id, session.name, session.handlers, session.queues, session.capabilities, session.slots,
    session.lease_ms, session.epoch, session.created_at, session.seen_at,
    session.seen_at > clock_timestamp() - session.lease_ms * interval '1 ms' AS is_recent,
    (SELECT count(*)::int FROM lease WHERE lease.session_id = session.id AND lease.session_id > 0) AS leased_count
  FROM session
  WHERE session.tenant_id = $1 AND session.id < $2
    AND session.closed_at IS NULL AND session.seen_at > clock_timestamp() - interval '1 minute'
  ORDER BY session.id DESC
  LIMIT $3`,
    [p.tenantId, p.beforeId, p.limit],
  );
