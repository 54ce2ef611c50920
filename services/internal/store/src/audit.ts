import type { Db } from "./db.ts";

export interface NewAudit {
  readonly tenantId: number;
  readonly principal: string;
  readonly action: string;
  readonly target: string;
  readonly result: string;
  /** The address that the gateway saw; left out for what the mesh does by itself. */
  readonly origin?: string | undefined;
  /** Of whoever cancelled. */
  readonly comment?: string | undefined;
}

export interface AuditRow {
  id: bigint;
  at: Date;
  principal: string;
  action: string;
  target: string;
  origin: string;
  result: string;
  comment: string;
}

/** Notes who did what to what. Starts are audited by the run's row, workers' calls by their attempts. */
export const insertAudit = (db: Db, p: NewAudit) =>
  db.rows(
    "insert_audit",
    `
  INSERT INTO audit (tenant_id, principal, action, target, result, origin, comment)
  VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [p.tenantId, p.principal, p.action, p.target, p.result, p.origin ?? "", p.comment ?? ""],
  );

export interface AuditFilter {
  /** Empty texts ask for all. */
  readonly principal: string;
  readonly action: string;
  readonly target: string;
  readonly after: Date | undefined;
  readonly before: Date | undefined;
}

/** Newest first, below `beforeId`. */
export const listAudit = (db: Db, p: { tenantId: number; filter: AuditFilter; beforeId: bigint; limit: number }) =>
  db.rows<AuditRow>(
    "list_audit",
    `
  SELECT id, at, principal, action, target, origin, result, comment FROM audit
  WHERE tenant_id = $1 AND id < $2
    AND ($3 = '' OR principal = $3)
    AND ($4 = '' OR action = $4)
    AND ($5 = '' OR target = $5)
    AND ($6::timestamptz IS NULL OR at > $6)
    AND ($7::timestamptz IS NULL OR at < $7)
  ORDER BY id DESC
  LIMIT $8`,
    [
      p.tenantId,
      p.beforeId,
      p.filter.principal,
      p.filter.action,
      p.filter.target,
      p.filter.after,
      p.filter.before,
      p.limit,
    ],
  );

/** Forgets entries older than 400 days, of every tenant; answers how many. */
export const forgetAudit = async (db: Db, p: { limit: number }): Promise<number> => {
  const { count } = await db.one<{ count: number }>(
    "forget_audit",
    `
  WITH old AS (
    DELETE FROM audit
    WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM audit
      WHERE at < clock_timestamp() - interval '400 days'
      ORDER BY at
      LIMIT $1
      FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
  )
  SELECT count(*)::int AS count FROM old`,
    [p.limit],
  );
  return count;
};
