import type { Db } from "./db.ts";

/** Notes a request id, in the transaction of the move it asks for. False where it was made before. */
export const noteRequest = async (db: Db, p: { tenantId: number; digest: string }): Promise<boolean> => {
  const rows = await db.rows<{ digest: string }>(
    "note_request",
    `
  INSERT INTO request (tenant_id, digest) VALUES ($1, $2)
  ON CONFLICT DO NOTHING
  RETURNING digest`,
    [p.tenantId, p.digest],
  );
  return rows.length > 0;
};

/** Forgets request ids older than 24 h, of every tenant; answers how many. */
export const forgetRequests = async (db: Db, p: { limit: number }): Promise<number> => {
  const { count } = await db.one<{ count: number }>(
    "forget_requests",
    `
  WITH old AS (
    DELETE FROM request
    WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM request
      WHERE created_at < clock_timestamp() - interval '24 hours'
      ORDER BY created_at
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

/** Whether a request id was noted before. */
export const hasRequest = async (db: Db, p: { tenantId: number; digest: string }): Promise<boolean> => {
  const { noted } = await db.one<{ noted: boolean }>(
    "has_request",
    `
  SELECT EXISTS (SELECT FROM request WHERE tenant_id = $1 AND digest = $2) AS noted`,
    [p.tenantId, p.digest],
  );
  return noted;
};
