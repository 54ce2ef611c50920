import type { Db } from "./db.ts";

/**
 * The row that counts a key's slots. Invariants:
 *   1. A slot is taken under the lock of its key's row, and the row says at every commit how many are taken: so there are
 *      never more than the limit, and whoever changes the row in place needs no new snapshot to know.
 *   2. A slot may be given back before the row is locked, but whoever does locks the row in the same transaction, and
 *      counts it down by what it gave back or counts anew. Meanwhile others take the slot for taken.
 *   3. `waits` is true where a committed row of `held` (or a run that is not active yet) names the key: who places one
 *      locks the key afterwards. Who finds it false has nobody to admit; who finds it true admits, or sets it right.
 *   4. Rows are the last locks of a transaction, each batch of them in the order of the keys' bytes, whether they exist
 *      or not. What comes later in the same transaction is only tried (SKIP LOCKED), save for runs that begin.
 */
const IN_ORDER = 'ORDER BY key COLLATE "C"';

/**
 * Locks keys until the end of the transaction, so that whoever counts slots counts alone; a row that is missing is made.
 * `mayWait` false answers which could be had at once.
 */
export const lockKeys = async (
  db: Db,
  p: { tenantId: number; keys: readonly string[]; mayWait: boolean },
): Promise<string[]> => {
  const rows = await db.rows<{ key: string }>(
    p.mayWait ? "lock_keys" : "try_lock_keys",
    p.mayWait
      ? `
  INSERT INTO slot_count AS known (tenant_id, key, used, waits)
  SELECT $1, key, 0, false FROM (SELECT DISTINCT key FROM unnest($2::text[]) AS key) AS named ${IN_ORDER}
  ON CONFLICT (tenant_id, key) DO UPDATE SET waits = known.waits
  RETURNING key`
      : `
  SELECT known.key
  FROM unnest($2::text[]) AS named (key)
  CROSS JOIN LATERAL (
    SELECT key FROM slot_count
    WHERE tenant_id = $1 AND key = named.key
    FOR NO KEY UPDATE SKIP LOCKED
    OFFSET 0
  ) AS known`,
    [p.tenantId, p.keys],
  );
  return rows.map((row) => row.key);
};

/**
 * Whether all of some keys could be locked at once, for who holds locks that come later in the order: a row that is
 * missing is not made, as that may wait. Those that could be had stay locked either way.
 */
export async function tryLockKeys(db: Db, p: { tenantId: number; keys: readonly string[] }): Promise<boolean> {
  const keys = [...new Set(p.keys)];
  return (await lockKeys(db, { tenantId: p.tenantId, keys, mayWait: false })).length === keys.length;
}

/** Counts locked keys anew: a statement of its own, so that its snapshot is newer than the locks. */
export const recountSlots = (db: Db, p: { tenantId: number; keys: readonly string[] }) =>
  db.rows(
    "recount_slots",
    `
  UPDATE slot_count
  SET used = CASE left(key, 2)
      WHEN 'w:' THEN (
        SELECT count(*) FROM run_slot WHERE tenant_id = $1 AND run_slot.key = substr(slot_count.key, 3) AND active)
      ELSE (SELECT count(*) FROM slot WHERE tenant_id = $1 AND slot.key = slot_count.key) END,
    waits = CASE left(key, 2)
      WHEN 'w:' THEN EXISTS (
        SELECT FROM run_slot WHERE tenant_id = $1 AND run_slot.key = substr(slot_count.key, 3) AND NOT active)
      WHEN 'k:' THEN EXISTS (
        SELECT FROM held
        WHERE tenant_id = $1 AND concurrency_key = substr(slot_count.key, 3) AND reason IN (2, 3))
      ELSE EXISTS (
        SELECT FROM held
        WHERE tenant_id = $1 AND task_id >= substr(slot_count.key, 3)::bigint << 20
          AND task_id < (substr(slot_count.key, 3)::bigint + 1) << 20 AND reason IN (2, 3)) END,
    changed_at = clock_timestamp()
  WHERE tenant_id = $1 AND key = ANY ($2::text[])`,
    [p.tenantId, p.keys],
  );

/**
 * Removes rows of keys that nobody has used for an hour, of `max_parallel` for a minute, as most of these runs have ended;
 * of every tenant. Answers how many.
 */
export const removeIdleCounts = async (db: Db, p: { limit: number }): Promise<number> => {
  const rows = await db.rows(
    "remove_idle_counts",
    `
  DELETE FROM slot_count
  WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM slot_count
    WHERE used = 0 AND NOT waits
      AND changed_at < clock_timestamp() - CASE WHEN key LIKE 'r:%' THEN interval '1 minute' ELSE interval '1 hour' END
    LIMIT $1
    FOR UPDATE SKIP LOCKED
  ))
  RETURNING key`,
    [p.limit],
  );
  return rows.length;
};

/**
 * CTEs that give slots back and take others, all under the locks of their keys' rows. `parts` is a query whose rows say
 * what is asked: (key, freed, id, most), where `freed` counts slots that the statement gave back, and `id` wants one of
 * at most `most`, or is NULL. Of one key either all that want a slot have one, or none: with too little room, or behind
 * others that wait, `waits` becomes true, which `contended` tells, and the caller admits: in the same transaction, if
 * what it asked for may have two keys.
 *
 * What wants slots of two keys may have been counted under the one and refused under the other: the caller passes all
 * keys of what was `refused` to `admit`, which counts them anew before anybody else sees them.
 */
export const settleSlots = (parts: string): string => `
  demand AS MATERIALIZED (
    SELECT key, sum(freed)::int AS freed, count(id)::int AS wanted, coalesce(min(most), 0) AS most,
      array_agg(id) FILTER (WHERE id IS NOT NULL) AS ids
    FROM (${parts}) AS part (key, freed, id, most)
    GROUP BY key
  ), demands AS MATERIALIZED (
    SELECT jsonb_object_agg(key, jsonb_build_array(freed, wanted, most)) AS by_key FROM demand
  ), counts AS (
    INSERT INTO slot_count AS known (tenant_id, key, used, waits)
    SELECT $1, key, CASE WHEN wanted <= most THEN wanted ELSE 0 END, wanted > most FROM demand ${IN_ORDER}
    ON CONFLICT (tenant_id, key) DO UPDATE
    SET (used, waits, changed_at) = (
      SELECT known.used - freed + CASE WHEN fits THEN wanted ELSE 0 END, NOT fits, clock_timestamp()
      FROM (
        SELECT freed, wanted, NOT known.waits AND (wanted = 0 OR known.used - freed + wanted <= most) AS fits
        FROM (
          SELECT (asked ->> 0)::int AS freed, (asked ->> 1)::int AS wanted, (asked ->> 2)::int AS most
          FROM (SELECT (SELECT by_key FROM demands) -> excluded.key AS asked OFFSET 0) AS found
        ) AS read
      ) AS judged
    )
    RETURNING key, waits
  ), contended AS MATERIALIZED (
    SELECT array_agg(key) AS keys, jsonb_object_agg(key, true) AS by_key FROM counts WHERE waits
  ), refused AS MATERIALIZED (
    SELECT array_agg(DISTINCT id ORDER BY id) AS ids
    FROM demand CROSS JOIN LATERAL unnest(ids) AS named (id)
    WHERE (SELECT by_key FROM contended) ? key
  )`;

/** After `settleSlots`: whether what wanted slots did not get them. */
export const isRefused = (id: string): string =>
  `coalesce(((SELECT ids FROM refused))[width_bucket(${id}, (SELECT ids FROM refused))] = ${id}, false)`;

/** The slots that tasks of a CTE want: (task_id, route_id, rank, key, slot_limit, run_limit), with 0 for no limit. */
export const wantedBy = (tasks: string): string => `
      SELECT 'k:' || key, 0, task_id, slot_limit FROM ${tasks} WHERE slot_limit > 0
      UNION ALL
      SELECT 'r:' || (task_id >> 20), 0, task_id, run_limit FROM ${tasks} WHERE run_limit > 0`;

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";

/**
 * After `settleSlots`: tasks of `opened`, which nothing but limits holds up, are ready with their slots, or held. `woken`
 * has the routes of those that are ready.
 */
export const PLACE_OPENED = `
  judged AS MATERIALIZED (
    SELECT task_id, route_id, rank, key, slot_limit, run_limit, ${isRefused("task_id")} AS is_refused FROM opened
  ), taken AS (
    INSERT INTO slot (tenant_id, key, task_id)
    SELECT $1, 'k:' || key, task_id FROM judged WHERE slot_limit > 0 AND NOT is_refused
    UNION ALL
    SELECT $1, 'r:' || (task_id >> 20), task_id FROM judged WHERE run_limit > 0 AND NOT is_refused
  ), woken AS (
    INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
    SELECT $1, task_id, route_id, rank, 0, 0, 0, clock_timestamp() FROM judged WHERE NOT is_refused
    RETURNING route_id
  ), waiting AS (
    INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at, limited, concurrency_key, slot_limit, run_limit)
    SELECT $1, task_id, route_id, rank, 0, 0, 0, CASE WHEN slot_limit > 0 THEN 2 ELSE 3 END, clock_timestamp(), true, key,
      slot_limit, run_limit
    FROM judged
    WHERE is_refused
  )`;
