import type { Db } from "./db.ts";

/** A run's events are relayed by whoever holds its group: run id modulo 16. */
export interface LaneGroupRow {
  id: number;
  owner: string;
  fence: bigint;
  /** False when it has expired by the database's clock. */
  live: boolean;
}

/** Lane groups held, with the fence of each. */
export interface HeldLaneGroups {
  readonly owner: string;
  readonly ids: readonly number[];
  readonly fences: readonly bigint[];
}

export const listLaneGroups = (db: Db) =>
  db.rows<LaneGroupRow>(
    "list_lane_groups",
    `
  SELECT id, owner, fence, expires_at > clock_timestamp() AS live
  FROM lane_group
  ORDER BY id`,
    [],
  );

/** Holds on to the groups named. One that does not come back is lost (G4). */
export const renewLaneGroups = (db: Db, p: { held: HeldLaneGroups; ttlMs: number }) =>
  db.rows<{ id: number }>(
    "renew_lane_groups",
    `
  WITH mine AS MATERIALIZED (
    SELECT lane_group.id
    FROM unnest($1::smallint[], $2::bigint[]) AS held (id, fence)
    JOIN lane_group ON lane_group.id = held.id AND lane_group.fence = held.fence
    WHERE lane_group.owner = $3 AND lane_group.expires_at > clock_timestamp()
    ORDER BY lane_group.id
    FOR NO KEY UPDATE OF lane_group
  )
  UPDATE lane_group
  SET expires_at = clock_timestamp() + make_interval(secs => $4::float8 / 1000)
  WHERE id = ANY (ARRAY(SELECT mine.id FROM mine))
  RETURNING id`,
    [p.held.ids, p.held.fences, p.held.owner, p.ttlMs],
  );

/**
 * Takes groups seen at the fences given, from whoever holds them: each gets the next fence, so the holder before can
 * remove nothing more. A group whose fence has moved since does not come back. Waits for removals in flight.
 */
export const takeLaneGroups = (
  db: Db,
  p: { owner: string; ids: readonly number[]; fences: readonly bigint[]; ttlMs: number },
) =>
  db.rows<{ id: number; fence: bigint }>(
    "take_lane_groups",
    `
  WITH seen AS MATERIALIZED (
    SELECT lane_group.id
    FROM unnest($1::smallint[], $2::bigint[]) AS seen (id, fence)
    JOIN lane_group ON lane_group.id = seen.id AND lane_group.fence = seen.fence
    ORDER BY lane_group.id
    FOR NO KEY UPDATE OF lane_group
  )
  UPDATE lane_group
  SET owner = $3, fence = fence + 1, expires_at = clock_timestamp() + make_interval(secs => $4::float8 / 1000)
  WHERE id = ANY (ARRAY(SELECT seen.id FROM seen))
  RETURNING id, fence`,
    [p.ids, p.fences, p.owner, p.ttlMs],
  );

/** Gives groups up at once, for a relay that stops. */
export const releaseLaneGroups = (db: Db, p: { held: HeldLaneGroups }) =>
  db.rows(
    "release_lane_groups",
    `
  WITH mine AS MATERIALIZED (
    SELECT lane_group.id
    FROM unnest($1::smallint[], $2::bigint[]) AS held (id, fence)
    JOIN lane_group ON lane_group.id = held.id AND lane_group.fence = held.fence
    WHERE lane_group.owner = $3
    ORDER BY lane_group.id
    FOR NO KEY UPDATE OF lane_group
  )
  UPDATE lane_group
  SET expires_at = '-infinity'
  WHERE id = ANY (ARRAY(SELECT mine.id FROM mine))`,
    [p.held.ids, p.held.fences, p.held.owner],
  );

/** Within a transaction: holds the group against being taken until its end, if it is still held under the fence. */
export const lockHeldLaneGroup = (tx: Db, p: { id: number; owner: string; fence: bigint }) =>
  tx.find<{ id: number }>(
    "lock_held_lane_group",
    `
  SELECT id FROM lane_group
  WHERE id = $1 AND owner = $2 AND fence = $3 AND expires_at > clock_timestamp()
  FOR SHARE`,
    [p.id, p.owner, p.fence],
  );

/** Within a transaction: keeps the group's holder from removing or parking anything until its end. */
export const lockLaneGroup = (tx: Db, p: { id: number }) =>
  tx.one<{ id: number }>(
    "lock_lane_group",
    `
  SELECT id FROM lane_group
  WHERE id = $1
  FOR NO KEY UPDATE`,
    [p.id],
  );
