import type { Db } from "./db.ts";

export interface RunSlotRow {
  run_id: bigint;
  slot_limit: number;
  active: boolean;
  /** Not due yet: it waits for its time, and for no room. */
  is_later: boolean;
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

/** The limit that a run shares with others, where there is one. */
export const findRunSlot = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<{ key: string; slot_limit: number }>(
    "find_run_slot",
    "SELECT key, slot_limit FROM run_slot WHERE tenant_id = $1 AND run_id = $2",
    [p.tenantId, p.runId],
  );

/**
 * The active runs of a key and the oldest of those that wait, oldest first, but for those that are noted to be due later.
 * The key is locked.
 */
export const listRunSlots = (db: Db, p: { tenantId: number; key: string; waiting: number }) =>
  db.rows<RunSlotRow>(
    "list_run_slots",
    `
  SELECT run_id, slot_limit, active, false AS is_later FROM run_slot
  WHERE tenant_id = $1 AND key = $2 AND active
  UNION ALL
  (SELECT run_id, slot_limit, active, coalesce((
      SELECT run.due_at > clock_timestamp() FROM run WHERE run.tenant_id = $1 AND run.id = run_slot.run_id), false)
    FROM run_slot
    WHERE tenant_id = $1 AND key = $2 AND NOT active AND due_at IS NULL ORDER BY run_id LIMIT $3)`,
    [p.tenantId, p.key, p.waiting],
  );

/**
 * Notes of waiting runs of a key, the oldest `looked`, which are due later, so that nobody looks at them again before.
 * The key is locked, as it is where `noteDue` takes that back.
 */
export const noteLater = (db: Db, p: { tenantId: number; key: string; looked: number }) =>
  db.rows(
    "note_later",
    `
  UPDATE run_slot SET due_at = later.due_at
  FROM (
    SELECT waiting.run_id, run.due_at
    FROM (
      SELECT run_id FROM run_slot
      WHERE tenant_id = $1 AND key = $2 AND NOT active AND due_at IS NULL
      ORDER BY run_id
      LIMIT $3
    ) AS waiting
    CROSS JOIN LATERAL (
      SELECT due_at FROM run
      WHERE run.tenant_id = $1 AND run.id = waiting.run_id AND due_at > clock_timestamp()
      OFFSET 0
    ) AS run
  ) AS later
  WHERE run_slot.tenant_id = $1 AND run_slot.key = $2 AND run_slot.run_id = later.run_id`,
    [p.tenantId, p.key, p.looked],
  );

/** A run's time has come. The key is locked. */
export const noteDue = (db: Db, p: { tenantId: number; key: string; runId: bigint }) =>
  db.rows(
    "note_due",
    `
  UPDATE run_slot SET due_at = NULL
  WHERE tenant_id = $1 AND key = $2 AND run_id = $3 AND due_at IS NOT NULL`,
    [p.tenantId, p.key, p.runId],
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

/**
 * Runs of a key but the newest `keep`, oldest first: what a newcomer that cancels the oldest leaves behind. A run counts
 * from its start time on; one that is due later is neither counted nor left behind.
 */
export const listOlderRuns = (db: Db, p: { tenantId: number; key: string; keep: number; limit: number }) =>
  db.rows<{ run_id: bigint }>(
    "list_older_runs",
    `
  SELECT run_id FROM (
    SELECT run_slot.run_id, run.came_at
    FROM run_slot
    CROSS JOIN LATERAL (
      SELECT greatest(created_at, due_at) AS came_at FROM run
      WHERE run.tenant_id = $1 AND run.id = run_slot.run_id
      OFFSET 0
    ) AS run
    WHERE run_slot.tenant_id = $1 AND run_slot.key = $2 AND run_slot.due_at IS NULL AND run.came_at <= clock_timestamp()
    ORDER BY run.came_at DESC, run_slot.run_id DESC
    OFFSET $3
  ) AS older
  ORDER BY came_at, run_id
  LIMIT $4`,
    [p.tenantId, p.key, p.keep, p.limit],
  );
