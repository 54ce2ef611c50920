/** `fresh.ids[width_bucket(x, fresh.ids)] = x` is a binary search for x: two CTEs are never joined. */
export const isFresh = (id: string): string =>
  `((SELECT ids FROM fresh))[width_bucket(${id}, (SELECT ids FROM fresh))] = ${id}`;

// Runs and tasks are read from the arrays by their place `n`: that is cheaper than to unnest so many.
export const RUN_ID = "($3::bigint[])[n]";
/** The array is NULL where no run has a start time to come, and so is that of the deadlines. */
export const IS_LATER = "coalesce(($14::bigint[])[n] > 0, false)";
const DUE_AT = "to_timestamp(nullif(($14::bigint[])[n], 0) / 1000.0)";
const DEADLINE_AT = `coalesce(${DUE_AT}, now()) + nullif(($15::bigint[])[n], 0) * interval '1 ms'`;
const PLACES_OF = (array: string) => `generate_series(1, cardinality($${array}[]))`;

interface StartParts {
  /** No key is taken: one that is fails the statement. Else runs whose keys are taken are left out. */
  readonly areFresh?: boolean;
  /** Whether a run waits to begin. */
  readonly isPending?: string;
  /** CTEs that place the first tasks. */
  readonly placing?: string;
  /** Columns of the answer beside `started`. */
  readonly answers?: string;
}

const heads = (ifFresh: (id: string) => string): string => `
  heads AS (
    INSERT INTO ready (tenant_id, task_id, route_id, rank, attempt, failures, losses, ready_at)
    SELECT $1, ($20::bigint[])[n], ($21::int[])[n], ($22::smallint[])[n], 0, 0, 0, now()
    FROM ${PLACES_OF("20::bigint")} AS root (n)${ifFresh("(($20::bigint[])[n] >> 20)")}
  )`;

const FRESH = `
  fresh AS MATERIALIZED (
    SELECT coalesce(array_agg(run_id ORDER BY run_id), ARRAY[-1]::bigint[]) AS ids FROM keyed
  ),`;

/**
 * The statement that starts runs (start-runs.ts has its parameters, $1 to $23). Keys are taken in one order, so that
 * batches with the same ones do not wait for each other crosswise, and first, as what follows or the answer asks for them.
 */
export function startText({ areFresh = false, isPending = IS_LATER, placing, answers = "" }: StartParts): string {
  const ifFresh = (id: string) => (areFresh ? "" : `\n    WHERE ${isFresh(id)}`);
  return `
  WITH keyed AS (
    INSERT INTO start_key (tenant_id, workflow_id, digest, run_id, body_hash)
    SELECT $1, ($5::int[])[n], ($7::uuid[])[n], ${RUN_ID}, ($8::uuid[])[n]
    FROM ${PLACES_OF("3::bigint")} AS run (n)
    ORDER BY ($5::int[])[n], ($7::uuid[])[n]${areFresh ? "" : "\n    ON CONFLICT DO NOTHING"}
    RETURNING run_id
  ),${areFresh ? "" : FRESH}${placing ?? heads(ifFresh)}, started AS (
    INSERT INTO run (tenant_id, id, definition_id, workflow_id, state, task_count, open_count, max_parallel, input,
      labels, idempotency_key, created_at, due_at, started_at, deadline_at, principal, traceparent)
    SELECT $1, ${RUN_ID}, ($4::bigint[])[n], ($5::int[])[n], CASE WHEN ${isPending} THEN 1 ELSE 2 END, ($6::int[])[n],
      ($6::int[])[n], ($16::int[])[n],
      CASE WHEN ($11::int[])[n] >= 0 THEN substring($9::bytea FROM ($10::int[])[n] FOR ($11::int[])[n]) END,
      coalesce(labels::jsonb, '{}'), key, now(), ${DUE_AT}, CASE WHEN ${isPending} THEN NULL ELSE now() END,
      ${DEADLINE_AT}, $2, traceparent
    FROM ROWS FROM (${PLACES_OF("3::bigint")}, unnest($12::text[]), unnest($13::text[]), unnest($17::text[]))
      AS run (n, labels, key, traceparent)${ifFresh(RUN_ID)}
  ), timers AS (
    INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
    SELECT $1, run_id, kind, due_at
    FROM (
      SELECT ${RUN_ID} AS run_id, 1 AS kind, ${DUE_AT} AS due_at FROM ${PLACES_OF("14::bigint")} AS run (n)
      UNION ALL
      SELECT ${RUN_ID}, 2, ${DEADLINE_AT} FROM ${PLACES_OF("15::bigint")} AS run (n)
    ) AS timer
    WHERE due_at IS NOT NULL${areFresh ? "" : ` AND ${isFresh("run_id")}`}
  ), tasks AS (
    INSERT INTO task (tenant_id, id, pending)
    SELECT $1, ($18::bigint[])[n], ($19::int[])[n]
    FROM ${PLACES_OF("18::bigint")} AS task (n)${ifFresh("(($18::bigint[])[n] >> 20)")}
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types)
    SELECT min(${RUN_ID} & 15)::smallint, $1, count(*), array_agg(${RUN_ID} ORDER BY n),
      array_agg(($4::bigint[])[n] ORDER BY n), array_fill(1, ARRAY[count(*)::int]),
      array_fill(1::smallint, ARRAY[count(*)::int])
    FROM ${PLACES_OF("3::bigint")} AS run (n)${ifFresh(RUN_ID)}
    GROUP BY ($23::int[])[n]
    ORDER BY ($23::int[])[n]
  )
  SELECT array_agg(run_id)::text AS started${answers} FROM keyed`;
}
