import type { Db } from "./db.ts";

/**
 * One event as the outbox and a run's history hold it. Times are microseconds since 1970; 0, an empty text and the
 * ordinal -1 stand for what the event does not have.
 */
export interface EventRow {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly definitionId: bigint;
  readonly sequence: number;
  readonly type: number;
  readonly atMicros: number;
  /** Place of the task in the definition. */
  readonly ordinal: number;
  readonly attempt: number;
  readonly fence: bigint;
  readonly sessionId: bigint;
  readonly leasedAtMicros: number;
  readonly startedAtMicros: number;
  readonly outcome: number;
  readonly errorType: string;
  readonly retryAtMicros: number;
}

/** Rows of the outbox, one array a column: they come as one row of the result, which is what makes the read cheap. */
export interface OutboxRows {
  readonly count: number;
  /** Places (`ctid`), as text. */
  readonly places: readonly string[];
  readonly ids: readonly number[];
  readonly laneGroups: readonly number[];
  readonly tenantIds: readonly number[];
  readonly runIds: readonly number[];
  readonly definitionIds: readonly number[];
  readonly sequences: readonly number[];
  readonly types: readonly number[];
  readonly times: readonly number[];
  readonly ordinals: readonly number[];
  readonly attempts: readonly number[];
  readonly fences: readonly number[];
  readonly sessionIds: readonly number[];
  readonly leaseTimes: readonly number[];
  readonly startTimes: readonly number[];
  readonly outcomes: readonly number[];
  readonly errorTypes: readonly (string | null)[];
  readonly retryTimes: readonly number[];
  /** Whether any run, of whatever group, has parked rows. */
  readonly anyParked: boolean;
}

/** Lane groups held, with the fence of each. */
export interface HeldLaneGroups {
  readonly owner: string;
  readonly ids: readonly number[];
  readonly fences: readonly bigint[];
}

type ColumnNames = Exclude<keyof OutboxRows, "count" | "anyParked">;
type TakenRow = { count: number; anyParked: boolean } & Record<ColumnNames, string | null>;

/** Locks the groups that are still held under their fences, in order, for the rest of the statement (G3). */
const MINE = `mine AS MATERIALIZED (
    SELECT lane_group.id
    FROM unnest($1::smallint[], $2::bigint[]) AS held (id, fence)
    JOIN lane_group ON lane_group.id = held.id AND lane_group.fence = held.fence
    WHERE lane_group.owner = $3 AND lane_group.expires_at > clock_timestamp()
    ORDER BY lane_group.id
    FOR SHARE OF lane_group
  )`;

const micros = (column: string) => `array_agg(coalesce((date_part('epoch', ${column}) * 1000000)::bigint, 0))::text`;

/**
 * The first rows of each group, by id, groups in the order given; at most `limit` in all. Within a run the order of
 * ids is that of its sequence, and every row that stands is looked at, so one that commits late is not passed over.
 * Ids fit a `number`: they come from sequences. A task's may not, so its ordinal is read instead.
 */
export async function takeOutbox(
  db: Db,
  p: { laneGroups: readonly number[]; perGroup: number; limit: number },
): Promise<OutboxRows> {
  const row = await db.one<TakenRow>(
    "take_outbox",
    `
  SELECT count(taken.id)::int AS count,
    array_agg(taken.place)::text AS places,
    array_agg(taken.id)::text AS ids,
    array_agg(taken.lane_group)::text AS "laneGroups",
    array_agg(taken.tenant_id)::text AS "tenantIds",
    array_agg(taken.run_id)::text AS "runIds",
    array_agg(taken.definition_id)::text AS "definitionIds",
    array_agg(taken.sequence)::text AS sequences,
    array_agg(taken.type)::text AS types,
    ${micros("taken.at")} AS times,
    array_agg(coalesce((taken.task_id & 1048575)::int, -1))::text AS ordinals,
    array_agg(coalesce(taken.attempt, 0))::text AS attempts,
    array_agg(coalesce(taken.fence, 0))::text AS fences,
    array_agg(coalesce(taken.session_id, 0))::text AS "sessionIds",
    ${micros("taken.leased_at")} AS "leaseTimes",
    ${micros("taken.started_at")} AS "startTimes",
    array_agg(coalesce(taken.outcome, 0))::text AS outcomes,
    json_agg(taken.error_type)::text AS "errorTypes",
    ${micros("taken.retry_at")} AS "retryTimes",
    EXISTS (SELECT FROM outbox_parked) AS "anyParked"
  FROM (
    SELECT o.place, o.id, o.lane_group, o.tenant_id, o.run_id, o.definition_id, o.sequence, o.type, o.at, o.task_id,
      o.attempt, o.fence, o.session_id, o.leased_at, o.started_at, o.outcome, o.error_type, o.retry_at
    FROM unnest($1::smallint[]) WITH ORDINALITY AS g (lane_group, n)
    CROSS JOIN LATERAL (
      SELECT outbox.ctid AS place, outbox.id, outbox.lane_group, outbox.tenant_id, outbox.run_id,
        outbox.definition_id, outbox.sequence, outbox.type, outbox.at, outbox.task_id, outbox.attempt, outbox.fence,
        outbox.session_id, outbox.leased_at, outbox.started_at, outbox.outcome, outbox.error_type, outbox.retry_at
      FROM outbox
      WHERE outbox.lane_group = g.lane_group
      ORDER BY outbox.id
      LIMIT $2 OFFSET 0
    ) AS o
    ORDER BY g.n, o.id
    LIMIT $3
  ) AS taken`,
    [p.laneGroups, p.perGroup, p.limit],
  );
  return {
    count: row.count,
    anyParked: row.anyParked,
    places: readArray(row.places),
    ids: readArray(row.ids),
    laneGroups: readArray(row.laneGroups),
    tenantIds: readArray(row.tenantIds),
    runIds: readArray(row.runIds),
    definitionIds: readArray(row.definitionIds),
    sequences: readArray(row.sequences),
    types: readArray(row.types),
    times: readArray(row.times),
    ordinals: readArray(row.ordinals),
    attempts: readArray(row.attempts),
    fences: readArray(row.fences),
    sessionIds: readArray(row.sessionIds),
    leaseTimes: readArray(row.leaseTimes),
    startTimes: readArray(row.startTimes),
    outcomes: readArray(row.outcomes),
    errorTypes: row.errorTypes === null ? [] : (JSON.parse(row.errorTypes) as (string | null)[]),
    retryTimes: readArray(row.retryTimes),
  };
}

/** The row at `index`, as one object. */
export function outboxRow(rows: OutboxRows, index: number): EventRow {
  return {
    tenantId: rows.tenantIds[index]!,
    runId: BigInt(rows.runIds[index]!),
    definitionId: BigInt(rows.definitionIds[index]!),
    sequence: rows.sequences[index]!,
    type: rows.types[index]!,
    atMicros: rows.times[index]!,
    ordinal: rows.ordinals[index]!,
    attempt: rows.attempts[index]!,
    fence: BigInt(rows.fences[index]!),
    sessionId: BigInt(rows.sessionIds[index]!),
    leasedAtMicros: rows.leaseTimes[index]!,
    startedAtMicros: rows.startTimes[index]!,
    outcome: rows.outcomes[index]!,
    errorType: rows.errorTypes[index] ?? "",
    retryAtMicros: rows.retryTimes[index]!,
  };
}

/**
 * Removes exactly the rows named, by place and id (a place is used again after a vacuum), of groups that are still
 * held. `ids` rise. Answers how many went: fewer than named means that a group was lost, and its rows stay (G3).
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
    RETURNING id
  )
  SELECT count(gone.id)::int AS count FROM gone`,
    [p.held.ids, p.held.fences, p.held.owner, `{"${p.places.join('","')}"}`, `{${p.ids.join(",")}}`],
  );
  return row.count;
}

/**
 * Takes and removes in one statement, for a bus that nobody reads. Removes nothing (`refused`) when there is a named
 * subscription after all, or a parked run, whose later rows must wait behind it.
 */
export const discardOutbox = (db: Db, p: { held: HeldLaneGroups; perGroup: number }) =>
  db.one<{ count: number; largest: number; refused: boolean }>(
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
    RETURNING lane_group
  ),
  sizes AS (SELECT count(gone.lane_group)::int AS size FROM gone GROUP BY gone.lane_group)
  SELECT coalesce(sum(sizes.size), 0)::int AS count, coalesce(max(sizes.size), 0)::int AS largest,
    (EXISTS (SELECT FROM bus_subscription) OR EXISTS (SELECT FROM outbox_parked)) AS refused
  FROM sizes`,
    [p.held.ids, p.held.fences, p.held.owner, p.perGroup],
  );

/** Rows that wait, counted up to `limit`, and how long the oldest has waited. For the size limit and the lag metric. */
export const measureOutbox = (db: Db, p: { limit: number }) =>
  db.one<{ count: number; oldestMs: number }>(
    "measure_outbox",
    `
  SELECT (SELECT count(*)::int FROM (SELECT FROM outbox LIMIT $1) AS capped) AS count,
    coalesce((
      SELECT max(date_part('epoch', clock_timestamp() - first.at) * 1000)
      FROM generate_series(0, 15) AS g (id)
      CROSS JOIN LATERAL (
        SELECT outbox.at FROM outbox WHERE outbox.lane_group = g.id ORDER BY outbox.id LIMIT 1 OFFSET 0
      ) AS first
    ), 0)::float8 AS "oldestMs"`,
    [p.limit],
  );

/** Reads the text of an array without NULLs: its elements are numbers, or quoted. */
function readArray<T extends number | string>(text: string | null): T[] {
  return text === null ? [] : (JSON.parse(`[${text.slice(1, -1)}]`) as T[]);
}
