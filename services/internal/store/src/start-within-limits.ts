import { int4Array, int8Array, textArray } from "./binary-parameters.ts";
import { readIds } from "./complete-leases.ts";
import type { Db } from "./db.ts";
import type { TaskLimits } from "./limits.ts";
import { isRefused, PLACE_OPENED, settleSlots, wantedBy } from "./slot-counts.ts";
import { packStart, type Root, readStarted, type Start } from "./start-runs.ts";
import { IS_LATER, isFresh, RUN_ID, startText } from "./start-text.ts";

/** The limit that a run shares with others. */
export interface SharedLimit {
  readonly key: string;
  readonly limit: number;
}

export interface LimitsOfStart {
  /** `undefined` for a run that shares none. */
  sharedBy(runId: bigint): SharedLimit | undefined;
  ofRoot(root: Root): TaskLimits;
}

export interface StartedWithin {
  readonly started: ReadonlySet<bigint>;
  /** Keys that others wait for, what was just started included: to be admitted by. */
  readonly contended: readonly string[];
  /** First tasks whose slots may be counted without being theirs: they, or their runs, were refused. */
  readonly uncounted: readonly Root[];
}

/**
 * `startRuns` for runs some of which must pass limits: the statement takes the slots as well, all keys locked in one
 * order (slot-counts.ts). A run that its limit has room for is RUNNING from the start, as any other; the rest is PENDING, or
 * its first tasks are held, until the caller admits by the keys that are contended.
 */
export async function startWithinLimits(db: Db, p: Start, limits: LimitsOfStart): Promise<StartedWithin> {
  const { params, roots } = packStart(p);
  const sharing = p.runs.filter((run) => limits.sharedBy(run.runId) !== undefined);
  const shared = sharing.map((run) => limits.sharedBy(run.runId)!);
  const ofRoots = roots.map((root) => limits.ofRoot(root));
  params.push(
    int8Array(sharing.map((run) => run.runId)),
    textArray(shared.map(({ key }) => key)),
    int4Array(shared.map(({ limit }) => limit)),
    sharing.map((run) => run.dueAtMs > 0),
    textArray(ofRoots.map(({ key }) => key)),
    int4Array(ofRoots.map(({ slotLimit }) => slotLimit)),
    int4Array(ofRoots.map(({ runLimit }) => runLimit)),
  );
  const row = await db.one<StartedRow>("start_within_limits", START_WITHIN_LIMITS, params);
  const refused = new Set(readIds(row.refused));
  return {
    started: readStarted(row.started),
    contended: row.contended ?? [],
    uncounted: roots.filter(({ taskId }) => refused.has(taskId) || refused.has(-(taskId >> 20n))),
  };
}

interface StartedRow {
  started: string | null;
  contended: string[] | null;
  refused: string | null;
}

/** Among what wants slots a run goes by its id below zero, so that it is no task. Later ones want a slot of none. */
const PLACING = `
  sharing AS MATERIALIZED (
    SELECT run_id, key, most, is_later
    FROM unnest($24::bigint[], $25::text[], $26::int[], $27::boolean[]) AS run (run_id, key, most, is_later)
    WHERE ${isFresh("run_id")}
  ), root AS MATERIALIZED (
    SELECT task_id, route_id, rank, key, slot_limit, run_limit
    FROM unnest($20::bigint[], $21::int[], $22::smallint[], $28::text[], $29::int[], $30::int[])
      AS task (task_id, route_id, rank, key, slot_limit, run_limit)
    WHERE ${isFresh("(task_id >> 20)")}
  ),${settleSlots(`
      SELECT 'w:' || key, 0, -run_id, CASE WHEN is_later THEN 0 ELSE most END FROM sharing
      UNION ALL${wantedBy("root")}`)}, opened AS MATERIALIZED (
    SELECT task_id, route_id, rank, key, slot_limit, run_limit FROM root
    WHERE NOT ${isRefused("(-(task_id >> 20))")}
  ),${PLACE_OPENED}, entered AS (
    INSERT INTO run_slot (tenant_id, key, run_id, slot_limit, active)
    SELECT $1, key, run_id, most, NOT ${isRefused("(-run_id)")} FROM sharing
  )`;

const START_WITHIN_LIMITS = startText({
  isPending: `(${IS_LATER} OR ${isRefused(`(-${RUN_ID})`)})`,
  placing: PLACING,
  answers: `,
    (SELECT keys FROM contended) AS contended, (SELECT ids FROM refused)::text AS refused`,
});
