import type { Db } from "./db.ts";

export interface RunSlotRow {
  run_id: bigint;
  slot_limit: number;
  active: boolean;
}

/** Leaves the limit; answers the keys. */
export const freeRunSlot = async (db: Db, p: { tenantId: number; runId: bigint }): Promise<string[]> => {
  const rows = await db.rows<{ key: string }>(
    "free_run_slot",
    `
  DELETE FROM run_slot
  WHERE tenant_id = $1 AND run_id = $2
  RETURNING key`,
    [p.tenantId, p.runId],
  );
  return rows.map((row) => row.key);
};

/**
 * The active runs of a key and the oldest of those that wait, oldest first: those that are due later wait for their time,
 * and for no room. The key is locked.
 */
export const listRunSlots = (db: Db, p: { tenantId: number; key: string; waiting: number }) =>
  db.rows<RunSlotRow>(
    "list_run_slots",
    `
  SELECT run_id, slot_limit, active FROM run_slot
  WHERE tenant_id = $1 AND key = $2 AND active
  UNION ALL
  (SELECT run_id, slot_limit, active FROM run_slot
    CROSS JOIN LATERAL (
      SELECT FROM run
      WHERE run.tenant_id = $1 AND run.id = run_slot.run_id AND (due_at IS NULL OR due_at <= clock_timestamp())
      OFFSET 0
    ) AS due
    WHERE tenant_id = $1 AND key = $2 AND NOT active ORDER BY run_id LIMIT $3)`,
    [p.tenantId, p.key, p.waiting],
  );

/** Runs of a key, those included that wait or are due later, counted up to `limit`. The key is locked. */
export const countRunSlots = async (db: Db, p: { tenantId: number; key: string; limit: number }): Promise<number> => {
  const { count } = await db.one<{ count: number }>(
    "count_run_slots",
    `
  SELECT count(*)::int AS count
  FROM (SELECT FROM run_slot WHERE tenant_id = $1 AND key = $2 LIMIT $3) AS counted`,
    [p.tenantId, p.key, p.limit],
  );
  return count;
};

export const setRunSlotActive = (db: Db, p: { tenantId: number; key: string; runId: bigint }) =>
  db.rows(
    "set_run_slot_active",
    `
  UPDATE run_slot SET active = true
  WHERE tenant_id = $1 AND key = $2 AND run_id = $3`,
    [p.tenantId, p.key, p.runId],
  );

/** Runs of a key but the newest `keep`, oldest first: what a newcomer that cancels the oldest leaves behind. */
export const listOlderRuns = (db: Db, p: { tenantId: number; key: string; keep: number; limit: number }) =>
  db.rows<{ run_id: bigint }>(
    "list_older_runs",
    `
  SELECT run_id FROM (
    SELECT run_id FROM run_slot WHERE tenant_id = $1 AND key = $2 ORDER BY run_id DESC OFFSET $3
  ) AS older
  ORDER BY run_id
  LIMIT $4`,
    [p.tenantId, p.key, p.keep, p.limit],
  );

/** Keys with a run that waits though the limit has room, of every tenant: what an admission had to pass over. */
export const listWaitingRunKeys = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; key: string }>(
    "list_waiting_run_keys",
    `
  SELECT tenant_id, key FROM run_slot
  JOIN LATERAL (
    SELECT run.due_at IS NULL OR run.due_at <= clock_timestamp() AS is_due FROM run
    WHERE run.tenant_id = run_slot.tenant_id AND run.id = run_slot.run_id
    OFFSET 0
  ) AS run ON run.is_due OR run_slot.active
  GROUP BY tenant_id, key
  HAVING bool_or(NOT active) AND count(*) FILTER (WHERE active) < max(slot_limit)
  LIMIT $1`,
    [p.limit],
  );
