interface Completing {
  /** Every item is of another run. */
  readonly oneEach: boolean;
  readonly mayWait: boolean;
  /** CTEs before any lease ends, and the condition on which one does. */
  readonly looking?: string;
  readonly onlyIf?: string;
  readonly placing: string;
  readonly answers: string;
}

const texts = new Map<string, string>();

interface Variant {
  readonly hasDependents: boolean;
  readonly oneEach: boolean;
  readonly mayWait: boolean;
}

export function completeStatement({ hasDependents, oneEach, mayWait }: Variant): { name: string; text: string } {
  const parts = [hasDependents ? "_dependents" : "", oneEach ? "_one_each" : "", mayWait ? "_wait" : ""];
  const name = `complete_leases${parts.join("")}`;
  let text = texts.get(name);
  if (text === undefined) {
    text = writeCompletion({
      oneEach,
      mayWait,
      placing: hasDependents ? `${UNBLOCK}, woken AS (${READY_UNBLOCKED}),` : "",
      answers: hasDependents ? WOKEN_ROUTES : "NULL::text AS woken_routes",
    });
    texts.set(name, text);
  }
  return { name, text };
}

export const WOKEN_ROUTES = "(SELECT array_agg(DISTINCT route_id) FROM woken)::text AS woken_routes";

/** Counts the dependents of `done` down. */
export const UNBLOCK = `
  freed AS MATERIALIZED (
    SELECT array_agg(task_id ORDER BY task_id) AS task_ids, array_agg(n ORDER BY task_id) AS counts
    FROM (
      SELECT task_id, count(*)::int AS n
      FROM (
        SELECT ($14::bigint[])[g.at] AS task_id
        FROM done, generate_series(($12::int[])[done.place], ($13::int[])[done.place]) AS g (at)
      ) AS named
      GROUP BY task_id
    ) AS summed
  ), unblocked AS (
    UPDATE task
    SET pending = pending - ((SELECT counts FROM freed))[width_bucket(id, (SELECT task_ids FROM freed))]
    WHERE tenant_id = $1 AND id = ANY ((SELECT task_ids FROM freed)::bigint[])
      AND id >= $10::bigint << 20 AND id < ($11::bigint + 1) << 20
    RETURNING id, pending, state
  )`;

export const READY_UNBLOCKED = `
    INSERT INTO ready (tenant_id, task_id, route_id, rank, attempt, failures, losses, ready_at)
    SELECT $1, id, ($16::int[])[width_bucket(id, $15::bigint[])], ($17::smallint[])[width_bucket(id, $15::bigint[])],
      0, 0, 0, clock_timestamp()
    FROM unblocked
    WHERE pending = 0 AND state = 0
    RETURNING route_id`;

/** Where every item is of another run; read where it is used, as it is cheap. */
const DONE_ALONE = `
  done AS NOT MATERIALIZED (
    SELECT task_id, run_id, fence, session_id, attempt, leased_at, started_at, progress, place, 1 AS rank_in_run,
      ((SELECT sequences FROM runs))[run_place] AS sequence,
      ((SELECT definition_ids FROM runs))[run_place] AS definition_id,
      CASE WHEN ((SELECT open_counts FROM runs))[run_place] > 1 THEN 0::smallint ELSE ((SELECT ends FROM runs))[run_place]
      END AS ends_as
    FROM ended
  )`;

/** The last item of a run has the run's end with it. */
const DONE = `
  ranked AS (
    SELECT task_id, run_id, fence, session_id, attempt, leased_at, started_at, progress, place, run_place,
      (row_number() OVER (PARTITION BY run_id ORDER BY task_id))::int AS rank_in_run,
      (count(*) OVER (PARTITION BY run_id))::int AS done_count
    FROM ended
  ), done AS MATERIALIZED (
    SELECT task_id, run_id, fence, session_id, attempt, leased_at, started_at, progress, place, rank_in_run, done_count,
      ((SELECT sequences FROM runs))[run_place] AS sequence,
      ((SELECT definition_ids FROM runs))[run_place] AS definition_id,
      CASE WHEN rank_in_run < done_count OR ((SELECT open_counts FROM runs))[run_place] > done_count THEN 0::smallint
        ELSE ((SELECT ends FROM runs))[run_place] END AS ends_as
    FROM ranked
  ), counted AS MATERIALIZED (
    SELECT array_agg(run_id ORDER BY run_id) AS run_ids, array_agg(done_count ORDER BY run_id) AS counts
    FROM done
    WHERE rank_in_run = done_count
  )`;

const DONE_COUNT = "((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))]";

/** So many of the items are of the run in question. */
const ITEMS_OF_RUN = "width_bucket(((id + 1) << 20) - 1, $2::bigint[]) - width_bucket((id << 20) - 1, $2::bigint[])";

/**
 * The statement. `placing` are CTEs that follow from `done`, the items that count; `answers` are columns that tell of
 * them. `place` is an item's place in the arrays, found by binary search of its task id, `run_place` that of its run among
 * those that could be locked.
 */
export const writeCompletion = (p: Completing): string => {
  const { oneEach, mayWait, looking = "", onlyIf = "", placing, answers } = p;
  const count = oneEach ? "1" : DONE_COUNT;
  return `
  WITH locked AS MATERIALIZED (
    SELECT id, sequence, open_count, (CASE WHEN failing_count > 0 THEN 6 ELSE 5 END)::smallint AS ends_as, definition_id
    FROM run
    WHERE tenant_id = $1 AND id = ANY ($5::bigint[]) AND id >= $10::bigint AND id <= $11::bigint
      AND state = 2 AND (parent_task_id IS NULL OR open_count > ${ITEMS_OF_RUN})
    ORDER BY id
    FOR NO KEY UPDATE${mayWait ? "" : " SKIP LOCKED"}
  ), runs AS MATERIALIZED (
    SELECT array_agg(id) AS ids, array_agg(sequence) AS sequences, array_agg(open_count) AS open_counts,
      array_agg(ends_as) AS ends, array_agg(definition_id) AS definition_ids
    FROM locked
  ),${looking} ended AS (
    DELETE FROM lease
    WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
      AND fence = ($3::bigint[])[width_bucket(task_id, $2::bigint[])]
      AND session_id = ($4::bigint[])[width_bucket(task_id, $2::bigint[])]
      AND expires_at > clock_timestamp()
      AND ((SELECT ids FROM runs))[width_bucket(task_id >> 20, (SELECT ids FROM runs))] = task_id >> 20${onlyIf}
    RETURNING task_id, task_id >> 20 AS run_id, fence, session_id, attempt, leased_at,
      coalesce(started_at, leased_at) AS started_at, progress, width_bucket(task_id, $2::bigint[]) AS place,
      width_bucket(task_id >> 20, (SELECT ids FROM runs)) AS run_place
  ),${oneEach ? DONE_ALONE : DONE}, attempts AS (
    INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, started_at, ended_at, outcome,
      sequence, event_type, output, progress)
    SELECT $1, task_id, fence, attempt, session_id, leased_at, started_at, clock_timestamp(), 1,
      sequence + rank_in_run, 20,
      CASE WHEN ($9::int[])[place] >= 0 THEN substring($7::bytea FROM ($8::int[])[place] FOR ($9::int[])[place]) END,
      progress
    FROM done
  ),${placing} moved AS (
    UPDATE run
    SET open_count = open_count - ${count},
      sequence = sequence + ${count} + (open_count = ${count})::int,
      state = CASE WHEN open_count <> ${count} THEN state WHEN failing_count > 0 THEN 5 ELSE 4 END,
      finished_at = CASE WHEN open_count = ${count} THEN clock_timestamp() END
    WHERE tenant_id = $1 AND id = ANY (${oneEach ? "ARRAY(SELECT run_id FROM done)" : "(SELECT run_ids FROM counted)::bigint[]"})
      AND id >= $10::bigint AND id <= $11::bigint
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, ends, task_ids, attempts,
      fences, session_ids, leased_ats, started_ats, outcomes)
    SELECT min(run_id & 15)::smallint, $1, count(*) + count(*) FILTER (WHERE ends_as > 0),
      array_agg(run_id ORDER BY task_id), array_agg(definition_id ORDER BY task_id),
      array_agg(sequence + rank_in_run ORDER BY task_id), array_fill(20::smallint, ARRAY[count(*)::int]),
      array_agg(ends_as ORDER BY task_id), array_agg(task_id ORDER BY task_id), array_agg(attempt ORDER BY task_id),
      array_agg(fence ORDER BY task_id), array_agg(session_id ORDER BY task_id), array_agg(leased_at ORDER BY task_id),
      array_agg(started_at ORDER BY task_id), array_fill(1::smallint, ARRAY[count(*)::int])
    FROM done
    GROUP BY ($6::int[])[place]
    ORDER BY ($6::int[])[place]
  )
  SELECT array_agg(task_id)::text AS accepted,
    (array_agg(run_id) FILTER (WHERE ends_as > 0))::text AS ended_runs,
    ${answers}
  FROM done`;
};
