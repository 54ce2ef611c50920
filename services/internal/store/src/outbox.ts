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

/** Packs of the outbox and their events, one array a column: they come as one row of the result, which makes it cheap. */
export interface OutboxRows {
  /** Of the events. */
  readonly count: number;
  /** Of each pack: its place (`ctid`) as text, and so on. */
  readonly places: readonly string[];
  readonly ids: readonly number[];
  readonly laneGroups: readonly number[];
  readonly tenantIds: readonly number[];
  readonly times: readonly number[];
  /** Of each event: the index of its pack, and its element of the pack's arrays, from 1. A run's end may share one. */
  readonly packs: readonly number[];
  readonly elements: readonly number[];
  readonly runIds: readonly number[];
  readonly definitionIds: readonly number[];
  readonly sequences: readonly number[];
  readonly types: readonly number[];
  readonly ordinals: readonly number[];
  readonly attempts: readonly number[];
  readonly fences: readonly number[];
  readonly sessionIds: readonly number[];
  readonly leaseTimes: readonly number[];
  readonly startTimes: readonly number[];
  readonly outcomes: readonly number[];
  readonly errorTypes: readonly (string | null)[];
  readonly retryTimes: readonly number[];
  /** Those of the runs that have parked events: as of when the packs were read, so that a release comes before or after. */
  readonly parkedRunIds: readonly number[];
}

type TakenRow = Record<Exclude<keyof OutboxRows, "count">, string | null>;

const micros = (column: string) => `coalesce((date_part('epoch', ${column}) * 1000000)::bigint, 0)`;

/**
 * The first packs of each group, by id, groups in the order given, until they hold `limit` events. Within a run the
 * order of packs, and in a pack that of its elements, is that of its sequence; every pack that stands is looked at, so
 * one that commits late is not passed over. Where a run's end goes with an event, it comes right after it.
 * Ids fit a `number`: they come from sequences. A task's may not, so its ordinal is read instead.
 */
export async function takeOutbox(
  db: Db,
  p: { laneGroups: readonly number[]; perGroup: number; limit: number },
): Promise<OutboxRows> {
  const row = await db.one<TakenRow>("take_outbox", TAKE_OUTBOX, [p.laneGroups, p.perGroup, p.limit]);
  return {
    count: row.packs === null ? 0 : row.packs.split(",").length,
    parkedRunIds: readArray(row.parkedRunIds),
    places: readArray(row.places),
    ids: readArray(row.ids),
    laneGroups: readArray(row.laneGroups),
    tenantIds: readArray(row.tenantIds),
    times: readArray(row.times),
    packs: readArray(row.packs),
    elements: readArray(row.elements),
    runIds: readArray(row.runIds),
    definitionIds: readArray(row.definitionIds),
    sequences: readArray(row.sequences),
    types: readArray(row.types),
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

const TAKE_OUTBOX = `
  WITH pack AS MATERIALIZED (
    SELECT place, id, lane_group, tenant_id, at, run_ids, definition_ids, sequences, types, ends, task_ids, attempts,
      fences, session_ids, leased_ats, started_ats, outcomes, error_types, retry_ats,
      (row_number() OVER (ORDER BY n, id))::int - 1 AS index
    FROM (
      SELECT g.n, first.place, first.id, first.lane_group, first.tenant_id, first.at, first.run_ids,
        first.definition_ids, first.sequences, first.types, first.ends, first.task_ids, first.attempts, first.fences,
        first.session_ids, first.leased_ats, first.started_ats, first.outcomes, first.error_types, first.retry_ats,
        sum(first.size) OVER (ORDER BY g.n, first.id) - first.size AS before
      FROM unnest($1::smallint[]) WITH ORDINALITY AS g (lane_group, n)
      CROSS JOIN LATERAL (
        SELECT outbox.ctid AS place, outbox.id, outbox.lane_group, outbox.tenant_id, outbox.at, outbox.size,
          outbox.run_ids, outbox.definition_ids, outbox.sequences, outbox.types, outbox.ends, outbox.task_ids,
          outbox.attempts, outbox.fences, outbox.session_ids, outbox.leased_ats, outbox.started_ats, outbox.outcomes,
          outbox.error_types, outbox.retry_ats
        FROM outbox
        WHERE outbox.lane_group = g.lane_group
        ORDER BY outbox.id
        LIMIT $2 OFFSET 0
      ) AS first
    ) AS counted
    WHERE before < $3
  ), event AS MATERIALIZED (
    SELECT pack.index, pack.tenant_id, e.element, e.run_id, e.definition_id, e.sequence + e.is_end AS sequence,
      CASE e.is_end WHEN 1 THEN e.ends_as ELSE e.type END AS type, e.is_end = 1 AS is_end,
      e.task_id, e.attempt, e.fence, e.session_id, e.leased_at, e.started_at, e.outcome, e.error_type, e.retry_at
    FROM pack
    CROSS JOIN LATERAL (
      SELECT u.element, u.run_id, u.definition_id, u.sequence, u.type, u.ends_as, u.task_id, u.attempt, u.fence,
        u.session_id, u.leased_at, u.started_at, u.outcome, u.error_type, u.retry_at, n.is_end
      FROM unnest(pack.run_ids, pack.definition_ids, pack.sequences, pack.types, pack.ends, pack.task_ids, pack.attempts,
          pack.fences, pack.session_ids, pack.leased_ats, pack.started_ats, pack.outcomes, pack.error_types,
          pack.retry_ats)
        WITH ORDINALITY AS u (run_id, definition_id, sequence, type, ends_as, task_id, attempt, fence, session_id,
          leased_at, started_at, outcome, error_type, retry_at, element)
      CROSS JOIN LATERAL generate_series(0, CASE WHEN u.ends_as > 0 THEN 1 ELSE 0 END) AS n (is_end)
    ) AS e
    ORDER BY pack.index, e.element, e.is_end
  ), packs AS (
    SELECT array_agg(place ORDER BY index)::text AS places, array_agg(id ORDER BY index)::text AS ids,
      array_agg(lane_group ORDER BY index)::text AS lane_groups,
      array_agg(tenant_id ORDER BY index)::text AS tenant_ids, array_agg(${micros("at")} ORDER BY index)::text AS times
    FROM pack
  )
  SELECT (SELECT places FROM packs) AS places, (SELECT ids FROM packs) AS ids,
    (SELECT lane_groups FROM packs) AS "laneGroups", (SELECT tenant_ids FROM packs) AS "tenantIds",
    (SELECT times FROM packs) AS times,
    array_agg(index)::text AS packs,
    array_agg(element)::text AS elements,
    array_agg(run_id)::text AS "runIds",
    array_agg(definition_id)::text AS "definitionIds",
    array_agg(sequence)::text AS sequences,
    array_agg(type)::text AS types,
    array_agg(CASE WHEN is_end THEN -1 ELSE coalesce((task_id & 1048575)::int, -1) END)::text AS ordinals,
    array_agg(CASE WHEN is_end THEN 0 ELSE coalesce(attempt, 0) END)::text AS attempts,
    array_agg(CASE WHEN is_end THEN 0 ELSE coalesce(fence, 0) END)::text AS fences,
    array_agg(CASE WHEN is_end THEN 0 ELSE coalesce(session_id, 0) END)::text AS "sessionIds",
    array_agg(CASE WHEN is_end THEN 0 ELSE ${micros("leased_at")} END)::text AS "leaseTimes",
    array_agg(CASE WHEN is_end THEN 0 ELSE ${micros("started_at")} END)::text AS "startTimes",
    array_agg(CASE WHEN is_end THEN 0 ELSE coalesce(outcome, 0) END)::text AS outcomes,
    json_agg(error_type)::text AS "errorTypes",
    array_agg(${micros("retry_at")})::text AS "retryTimes",
    CASE WHEN EXISTS (SELECT FROM outbox_parked) THEN (
      SELECT array_agg(run_id)
      FROM (SELECT DISTINCT tenant_id, run_id FROM event) AS named
      CROSS JOIN LATERAL (
        SELECT FROM outbox_parked
        WHERE outbox_parked.tenant_id = named.tenant_id AND outbox_parked.run_id = named.run_id
        LIMIT 1 OFFSET 0
      ) AS parked
    ) END::text AS "parkedRunIds"
  FROM event`;

/** The event at `index`, as one object. */
export function outboxRow(rows: OutboxRows, index: number): EventRow {
  const pack = rows.packs[index]!;
  return {
    tenantId: rows.tenantIds[pack]!,
    runId: BigInt(rows.runIds[index]!),
    definitionId: BigInt(rows.definitionIds[index]!),
    sequence: rows.sequences[index]!,
    type: rows.types[index]!,
    atMicros: rows.times[pack]!,
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

/** Events that wait, counted up to `limit`, and how long the oldest has waited. For the size limit and the lag metric. */
export const measureOutbox = (db: Db, p: { limit: number }) =>
  db.one<{ count: number; oldestMs: number }>(
    "measure_outbox",
    `
  SELECT (SELECT coalesce(sum(size), 0)::int FROM (SELECT size FROM outbox LIMIT $1) AS capped) AS count,
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
