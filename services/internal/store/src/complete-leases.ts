import { int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { MAX_PACK } from "./outbox-packs.ts";

/**
 * The hot end of a task: success. Invariants:
 *   1. An item counts only if (tenant, session, task, fence) is current, its lease unexpired by the database's clock,
 *      and its run RUNNING (G1). A paused run's completions go through settle-run.ts, and so does one that may end a
 *      child run: its parent is told in the same transaction.
 *   2. The run's row is locked first, in ascending order, once for each distinct run; the lease is ended under it.
 *   3. Attempt, counters, dependents, sequence and events commit together (G2), and a run's sequence has no gap (G3).
 *   4. Run locks are taken with SKIP LOCKED where `mayWait` is false: one slow cancel holds up nobody else.
 *   5. No two CTEs are joined and rows are reached by = ANY(array), so that the plan cannot flip on small tables.
 */
export interface Completion {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly sessionId: bigint;
  /** JSON text; `undefined` for null. */
  readonly output: Buffer | undefined;
  /** Tasks that wait for this one: their ids, and how they are routed once nothing else holds them up. */
  readonly dependents: readonly Dependent[];
}

export interface Dependent {
  readonly taskId: bigint;
  readonly routeId: number;
  readonly rank: number;
}

export interface CompletionOutcome {
  /** Tasks whose completion counts. */
  readonly accepted: ReadonlySet<bigint>;
  readonly endedRuns: readonly bigint[];
  /** Routes that have new ready tasks. */
  readonly wokenRoutes: readonly number[];
}

/** Completes distinct tasks of one tenant, in ascending order of their ids. None of them has to do with limits. */
export async function completeLeases(
  db: Db,
  p: { tenantId: number; completions: readonly Completion[]; mayWait: boolean },
): Promise<CompletionOutcome> {
  const { params, dependents } = packCompletions(p.tenantId, p.completions);
  const hasDependents = dependents.length > 0;
  const name = `complete_leases${hasDependents ? "_dependents" : ""}${p.mayWait ? "_wait" : ""}`;
  const row = await db.one<OutcomeRow>(name, completeText(hasDependents, p.mayWait), params);
  return readOutcome(row);
}

export interface OutcomeRow {
  accepted: string | null;
  ended_runs: string | null;
  woken_routes: string | null;
}

export const readOutcome = (row: OutcomeRow): CompletionOutcome => ({
  accepted: new Set(readIds(row.accepted)),
  endedRuns: readIds(row.ended_runs),
  wokenRoutes: readIds(row.woken_routes).map(Number),
});

export const readIds = (array: string | null): bigint[] =>
  array === null || array === "{}" ? [] : array.slice(1, -1).split(",").map(BigInt);

/** The statement's parameters, $1 to $11 and, where there are dependents, to $17; these, distinct and in ascending order. */
export function packCompletions(
  tenantId: number,
  completions: readonly Completion[],
): { params: unknown[]; dependents: readonly Dependent[] } {
  const runIds: bigint[] = [];
  const runIndex: number[] = [];
  for (const { taskId } of completions) {
    const runId = taskId >> 20n;
    if (runIds.at(-1) !== runId) runIds.push(runId);
    runIndex.push(runIds.length);
  }
  const outputs = packOutputs(completions);
  const params: unknown[] = [
    tenantId,
    int8Array(completions.map((completion) => completion.taskId)),
    int8Array(completions.map((completion) => completion.fence)),
    int8Array(completions.map((completion) => completion.sessionId)),
    int8Array(runIds),
    int4Array(runIndex),
    outputs.bytes,
    int4Array(outputs.offsets),
    int4Array(outputs.sizes),
    runIds[0],
    runIds.at(-1),
  ];
  if (!completions.some((completion) => completion.dependents.length > 0)) return { params, dependents: [] };
  const { arrays, dependents } = packDependents(completions);
  params.push(...arrays);
  return { params, dependents };
}

function packOutputs(completions: readonly Completion[]) {
  const offsets: number[] = [];
  const sizes: number[] = [];
  const parts: Buffer[] = [];
  let at = 1;
  for (const { output } of completions) {
    offsets.push(at);
    sizes.push(output?.length ?? -1);
    if (output === undefined) continue;
    parts.push(output);
    at += output.length;
  }
  return { bytes: Buffer.concat(parts), offsets, sizes };
}

function packDependents(completions: readonly Completion[]) {
  const starts: number[] = [];
  const ends: number[] = [];
  const flat: bigint[] = [];
  const distinct = new Map<bigint, Dependent>();
  for (const { dependents } of completions) {
    starts.push(flat.length + 1);
    for (const dependent of dependents) {
      flat.push(dependent.taskId);
      distinct.set(dependent.taskId, dependent);
    }
    ends.push(flat.length);
  }
  const dependents = [...distinct.values()].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const arrays = [
    int4Array(starts),
    int4Array(ends),
    int8Array(flat),
    int8Array(dependents.map((dependent) => dependent.taskId)),
    int4Array(dependents.map((dependent) => dependent.routeId)),
    int2Array(dependents.map((dependent) => dependent.rank)),
  ];
  return { arrays, dependents };
}

interface Completing {
  readonly mayWait: boolean;
  /** CTEs before any lease ends, and the condition on which one does. */
  readonly looking?: string;
  readonly onlyIf?: string;
  readonly placing: string;
  readonly answers: string;
}

const texts = new Map<string, string>();

function completeText(hasDependents: boolean, mayWait: boolean): string {
  const key = `${hasDependents}/${mayWait}`;
  let text = texts.get(key);
  if (text === undefined) {
    text = writeCompletion({
      mayWait,
      placing: hasDependents ? `${UNBLOCK}, woken AS (${READY_UNBLOCKED}),` : "",
      answers: hasDependents ? WOKEN_ROUTES : "NULL::text AS woken_routes",
    });
    texts.set(key, text);
  }
  return text;
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

/**
 * The statement. `placing` are CTEs that follow from `done`, the items that count; `answers` are columns that tell of
 * them. `place` is an item's place in the arrays, found by binary search of its task id.
 */
export const writeCompletion = ({ mayWait, looking = "", onlyIf = "", placing, answers }: Completing): string => `
  WITH locked AS MATERIALIZED (
    SELECT coalesce(run.sequence, -1) AS sequence, coalesce(run.open_count, -1) AS open_count,
      coalesce(run.failing_count, 0) AS failing_count, coalesce(run.definition_id, 0) AS definition_id
    FROM unnest($5::bigint[]) WITH ORDINALITY AS named (run_id, n)
    LEFT JOIN LATERAL (
      SELECT sequence, open_count, failing_count, definition_id FROM run
      WHERE tenant_id = $1 AND id = named.run_id AND state = 2
        AND (parent_task_id IS NULL OR open_count > cardinality($2::bigint[]))
      FOR NO KEY UPDATE${mayWait ? "" : " SKIP LOCKED"}
      OFFSET 0
    ) AS run ON true
  ), runs AS MATERIALIZED (
    SELECT array_agg(sequence) AS sequences, array_agg(open_count) AS open_counts,
      array_agg(failing_count) AS failing_counts, array_agg(definition_id) AS definition_ids
    FROM locked
  ),${looking} ended AS (
    DELETE FROM lease
    WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
      AND fence = ($3::bigint[])[width_bucket(task_id, $2::bigint[])]
      AND session_id = ($4::bigint[])[width_bucket(task_id, $2::bigint[])]
      AND expires_at > clock_timestamp()
      AND ((SELECT sequences FROM runs))[($6::int[])[width_bucket(task_id, $2::bigint[])]] >= 0${onlyIf}
    RETURNING task_id, fence, session_id, attempt, leased_at, started_at, progress,
      width_bucket(task_id, $2::bigint[]) AS place
  ), ranked AS (
    SELECT task_id, task_id >> 20 AS run_id, fence, session_id, attempt, leased_at,
      coalesce(started_at, leased_at) AS started_at, progress, place,
      ((SELECT sequences FROM runs))[($6::int[])[place]] AS sequence,
      ((SELECT open_counts FROM runs))[($6::int[])[place]] AS open_count,
      ((SELECT failing_counts FROM runs))[($6::int[])[place]] AS failing_count,
      ((SELECT definition_ids FROM runs))[($6::int[])[place]] AS definition_id,
      (row_number() OVER by_run)::int AS rank_in_run,
      (count(*) OVER (PARTITION BY task_id >> 20))::int AS done_count
    FROM ended
    WINDOW by_run AS (PARTITION BY task_id >> 20 ORDER BY task_id)
  ), done AS MATERIALIZED (
    SELECT task_id, run_id, fence, session_id, attempt, leased_at, started_at, progress, place, sequence, definition_id,
      rank_in_run, done_count,
      (CASE
        WHEN rank_in_run < done_count OR open_count > done_count THEN 0
        WHEN failing_count > 0 THEN 6 ELSE 5 END)::smallint AS ends_as
    FROM ranked
  ), counted AS MATERIALIZED (
    SELECT array_agg(run_id ORDER BY run_id) AS run_ids, array_agg(done_count ORDER BY run_id) AS counts
    FROM done
    WHERE rank_in_run = done_count
  ), attempts AS (
    INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, started_at, ended_at, outcome,
      sequence, event_type, output, progress)
    SELECT $1, task_id, fence, attempt, session_id, leased_at, started_at, clock_timestamp(), 1,
      sequence + rank_in_run, 20,
      CASE WHEN ($9::int[])[place] >= 0 THEN substring($7::bytea FROM ($8::int[])[place] FOR ($9::int[])[place]) END,
      progress
    FROM done
  ),${placing} moved AS (
    UPDATE run
    SET open_count = open_count - ((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))],
      sequence = sequence + ((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))]
        + (open_count = ((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))])::int,
      state = CASE
        WHEN open_count <> ((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))] THEN state
        WHEN failing_count > 0 THEN 5 ELSE 4 END,
      finished_at = CASE
        WHEN open_count = ((SELECT counts FROM counted))[width_bucket(id, (SELECT run_ids FROM counted))]
        THEN clock_timestamp() END
    WHERE tenant_id = $1 AND id = ANY ((SELECT run_ids FROM counted)::bigint[])
      AND id >= $10::bigint AND id <= $11::bigint
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, ends, task_ids, attempts,
      fences, session_ids, leased_ats, started_ats, outcomes)
    SELECT lane_group, $1, count(*) + count(*) FILTER (WHERE ends_as > 0),
      array_agg(run_id ORDER BY task_id), array_agg(definition_id ORDER BY task_id),
      array_agg(sequence + rank_in_run ORDER BY task_id), array_agg(20::smallint ORDER BY task_id),
      array_agg(ends_as ORDER BY task_id), array_agg(task_id ORDER BY task_id), array_agg(attempt ORDER BY task_id),
      array_agg(fence ORDER BY task_id), array_agg(session_id ORDER BY task_id), array_agg(leased_at ORDER BY task_id),
      array_agg(started_at ORDER BY task_id), array_agg(1::smallint ORDER BY task_id)
    FROM (
      SELECT task_id, run_id, definition_id, sequence, rank_in_run, ends_as, attempt, fence, session_id, leased_at,
        started_at, (run_id & 15)::smallint AS lane_group,
        (row_number() OVER (PARTITION BY run_id & 15 ORDER BY task_id) - 1) / ${MAX_PACK} AS pack
      FROM done
    ) AS event
    GROUP BY lane_group, pack
    ORDER BY lane_group, pack
  )
  SELECT array_agg(task_id)::text AS accepted,
    (array_agg(run_id) FILTER (WHERE ends_as > 0))::text AS ended_runs,
    ${answers}
  FROM done`;
