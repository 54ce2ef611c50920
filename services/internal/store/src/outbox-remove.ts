import type { Db } from "./db.ts";
import type { HeldLaneGroups } from "./lane-groups.ts";

/** Locks the groups that are still held under their fences, in order, for the rest of the statement (G3). */
const MINE = `mine AS MATERIALIZED (
    SELECT lane_group.id
    FROM unnest($1::smallint[], $2::bigint[]) AS held (id, fence)
    JOIN lane_group ON lane_group.id = held.id AND lane_group.fence = held.fence
    WHERE lane_group.owner = $3 AND lane_group.expires_at > clock_timestamp()
    ORDER BY lane_group.id
    FOR SHARE OF lane_group
  )`;

/**
 * Removes exactly the packs named, by place and id (a place is used again after a vacuum), of groups that are still
 * held. `ids` rise. Answers how many events went: fewer than they hold means that a group was lost (G3).
 */
export async function removeOutbox(
  db: Db,
  p: { held: HeldLaneGroups; places: readonly string[]; ids: ArrayLike<number> & { join(separator: string): string } },
): Promise<number> {
  const row = await db.one<{ count: number }>(
    "remove_outbox",
    `
  WITH ${MINE},
  gone AS (
    DELETE FROM outbox
    WHERE ctid = ANY ($4::tid[])
      AND id = ($5::bigint[])[width_bucket(id, $5::bigint[])]
      AND lane_group = ANY (ARRAY(SELECT mine.id FROM mine))
    RETURNING size
  )
  SELECT coalesce(sum(gone.size), 0)::int AS count FROM gone`,
    [p.held.ids, p.held.fences, p.held.owner, `{"${p.places.join('","')}"}`, `{${p.ids.join(",")}}`],
  );
  return row.count;
}

const PACK_COLUMNS = [
  "run_ids",
  "definition_ids",
  "sequences",
  "types",
  "ends",
  "task_ids",
  "attempts",
  "fences",
  "session_ids",
  "leased_ats",
  "started_ats",
  "outcomes",
  "error_types",
  "retry_ats",
];

const kept = (column: string) =>
  `${column} = (SELECT array_agg(${column}[k] ORDER BY k) FROM unnest($6::int[]) AS element (k))`;

/**
 * Leaves only the elements named of a pack whose group is still held: the others were sent. Answers whether it did. A
 * pack that shrank since it was read, by a statement whose answer was lost, has other elements there: the size tells,
 * as older releases of PostgreSQL do not look at the place again of a row that they waited for.
 */
export async function trimOutbox(
  db: Db,
  p: { held: HeldLaneGroups; place: string; id: number; size: number; elements: readonly number[] },
): Promise<boolean> {
  const { count } = await db.one<{ count: number }>(
    "trim_outbox",
    `
  WITH ${MINE},
  trimmed AS (
    UPDATE outbox
    SET size = cardinality($6::int[])
        + (SELECT count(k) FROM unnest($6::int[]) AS element (k) WHERE ends[k] > 0),
      ${PACK_COLUMNS.map(kept).join(",\n      ")}
    WHERE ctid = $4::tid AND id = $5::bigint AND size = $7::int
      AND lane_group = ANY (ARRAY(SELECT mine.id FROM mine))
    RETURNING id
  )
  SELECT count(trimmed.id)::int AS count FROM trimmed`,
    [p.held.ids, p.held.fences, p.held.owner, p.place, p.id, p.elements, p.size],
  );
  return count > 0;
}

/**
 * Takes and removes in one statement, for a bus that nobody reads. Removes nothing (`refused`) when there is a named
 * subscription after all, or a parked run, whose later rows must wait behind it.
 */
export const discardOutbox = (db: Db, p: { held: HeldLaneGroups; perGroup: number }) =>
  db.one<{ packs: number; count: number; largest: number; refused: boolean }>(
    "discard_outbox",
    `
  WITH ${MINE},
  gone AS (
    DELETE FROM outbox
    WHERE ctid = ANY (ARRAY(
        SELECT first.place
        FROM mine
        CROSS JOIN LATERAL (
          SELECT outbox.ctid AS place FROM outbox
          WHERE outbox.lane_group = mine.id
          ORDER BY outbox.id
          LIMIT $4 OFFSET 0
        ) AS first))
      AND NOT EXISTS (SELECT FROM bus_subscription)
      AND NOT EXISTS (SELECT FROM outbox_parked)
    RETURNING lane_group, size
  ),
  sizes AS (
    SELECT count(gone.lane_group)::int AS packs, sum(gone.size)::int AS events FROM gone GROUP BY gone.lane_group
  )
  SELECT coalesce(sum(sizes.packs), 0)::int AS packs, coalesce(sum(sizes.events), 0)::int AS count,
    coalesce(max(sizes.packs), 0)::int AS largest,
    (EXISTS (SELECT FROM bus_subscription) OR EXISTS (SELECT FROM outbox_parked)) AS refused
  FROM sizes`,
    [p.held.ids, p.held.fences, p.held.owner, p.perGroup],
  );
