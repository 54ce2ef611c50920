import { admitFreed } from "./admit-freed.ts";
import type { OnDeferred } from "./begin-run.ts";
import { int4Array, textArray } from "./binary-parameters.ts";
import {
  type Completion,
  type CompletionOutcome,
  type Dependent,
  type OutcomeRow,
  packCompletions,
  readIds,
  readOutcome,
  UNBLOCK,
  WOKEN_ROUTES,
  writeCompletion,
} from "./complete-leases.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import type { TaskLimits } from "./limits.ts";
import { placeDueLimited } from "./place-due.ts";
import { keysOf } from "./place-tasks.ts";
import { PLACE_OPENED, settleSlots, wantedBy } from "./slot-counts.ts";

/**
 * The hot end of a task whose run has to do with limits. Beside the invariants of complete-leases.ts:
 *   1. The slots of what ends are given back in its statement, and what follows takes its own there: both change the
 *      rows of their keys in place (slot-counts.ts), last of all locks, so that nobody's snapshot matters.
 *   2. Only where the statement finds something contended (others wait for the key, or there is too little room) more
 *      statements follow, in the same transaction, which admit the best that wait.
 *   3. The last end of a run gives its place under a shared limit back, and forgets the row that counted its
 *      `max_parallel`: nobody asks for it any more.
 */
export async function completeLimited(
  deps: { readonly hot: Db; readonly definitions: DefinitionCache },
  p: { tenantId: number; completions: readonly LimitedCompletion[]; mayWait: boolean },
): Promise<CompletionOutcome> {
  const { tenantId } = p;
  const { params, dependents } = packCompletions(tenantId, p.completions);
  const limited = dependents as readonly LimitedDependent[];
  const hasDependents = limited.length > 0;
  if (hasDependents) params.push(...packLimits(limited));
  const name = `complete_limited${hasDependents ? "_dependents" : ""}${p.mayWait ? "_wait" : ""}`;
  const text = completeText(hasDependents, p.mayWait);
  return admitDeferred(deps, tenantId, async (tx, onDeferred) => {
    const row = await tx.one<LimitedRow>(name, text, params);
    const outcome = readOutcome(row);
    if (row.contended === null) return outcome;
    const refused = new Set(readIds(row.refused));
    const keys = limited
      .filter(({ taskId }) => refused.has(taskId))
      .flatMap((task) => keysOf(task.taskId, task.limits));
    const woken = await admitFreed(tx, deps.definitions, {
      tenantId,
      keys: [...row.contended, ...keys],
      onDeferred,
    });
    return { ...outcome, wokenRoutes: [...new Set([...outcome.wokenRoutes, ...woken])] };
  });
}

/**
 * Runs `work` in a transaction, then what it deferred in others: the order of locks forbade to wait for it there. What a
 * crash cuts off is due, and the scheduler's.
 */
async function admitDeferred<T extends { readonly wokenRoutes: Iterable<number> }>(
  deps: { readonly hot: Db; readonly definitions: DefinitionCache },
  tenantId: number,
  work: (tx: Db, onDeferred: OnDeferred) => Promise<T>,
): Promise<T & { readonly wokenRoutes: readonly number[] }> {
  let deferred: (readonly bigint[])[] = [];
  const outcome = await deps.hot.transaction((tx) => {
    deferred = [];
    return work(tx, (taskIds) => deferred.push(taskIds));
  });
  const wokenRoutes = new Set(outcome.wokenRoutes);
  for (const taskIds of deferred) {
    const placed = await placeDueLimited({ db: deps.hot, definitions: deps.definitions }, { tenantId, taskIds });
    for (const route of placed) wokenRoutes.add(route);
  }
  return { ...outcome, wokenRoutes: [...wokenRoutes] };
}

export interface LimitedDependent extends Dependent {
  readonly limits: TaskLimits;
}

export interface LimitedCompletion extends Completion {
  readonly dependents: readonly LimitedDependent[];
}

interface LimitedRow extends OutcomeRow {
  contended: string[] | null;
  refused: string | null;
}

/** $18 to $21: the place of each dependent's key, 0 for none; the keys; the limits. */
function packLimits(dependents: readonly LimitedDependent[]): Buffer[] {
  const places = new Map<string, number>();
  const keyAt = dependents.map(({ limits: { key } }) => {
    if (key === undefined) return 0;
    if (!places.has(key)) places.set(key, places.size + 1);
    return places.get(key)!;
  });
  return [
    int4Array(keyAt),
    textArray([...places.keys()]),
    int4Array(dependents.map(({ limits }) => limits.slotLimit)),
    int4Array(dependents.map(({ limits }) => limits.runLimit)),
  ];
}

/** What nothing but its limits holds up. */
const OPENED = `
  opened AS MATERIALIZED (
    SELECT id AS task_id, ($16::int[])[place] AS route_id, ($17::smallint[])[place] AS rank,
      ($19::text[])[($18::int[])[place]] AS key, ($20::int[])[place] AS slot_limit, ($21::int[])[place] AS run_limit
    FROM (
      SELECT id, width_bucket(id, $15::bigint[]) AS place FROM unblocked WHERE pending = 0 AND state = 0
    ) AS open
  )`;

/** The sum hides the keys of slots, which begin with the tenant, so that they are found by their task or run. */
const placing = (hasDependents: boolean): string => `${hasDependents ? `${UNBLOCK}, ${OPENED},` : ""}
  finished AS MATERIALIZED (
    SELECT coalesce(array_agg(run_id), '{}') AS run_ids, coalesce(array_agg('r:' || run_id), '{}') AS keys
    FROM done
    WHERE ends_as > 0
  ), dropped AS (
    DELETE FROM slot
    WHERE tenant_id + 0 = $1 AND task_id = ANY (ARRAY(SELECT task_id FROM done))
    RETURNING key
  ), left_limits AS (
    DELETE FROM run_slot
    WHERE tenant_id + 0 = $1 AND run_id = ANY ((SELECT run_ids FROM finished)::bigint[])
    RETURNING key, active
  ), forgotten AS (
    DELETE FROM slot_count
    WHERE tenant_id = $1 AND key = ANY ((SELECT keys FROM finished)::text[])
  ),${settleSlots(`
      SELECT key, 1, NULL::bigint, NULL::int FROM dropped WHERE key <> ALL ((SELECT keys FROM finished)::text[])
      UNION ALL
      SELECT 'w:' || key, active::int, NULL, NULL FROM left_limits${
        hasDependents ? `\n      UNION ALL${wantedBy("opened")}` : ""
      }`)},${hasDependents ? `${PLACE_OPENED},` : ""}`;

const texts = new Map<string, string>();

function completeText(hasDependents: boolean, mayWait: boolean): string {
  const key = `${hasDependents}/${mayWait}`;
  let text = texts.get(key);
  if (text === undefined) {
    text = writeCompletion({
      mayWait,
      placing: placing(hasDependents),
      answers: `${hasDependents ? WOKEN_ROUTES : "NULL::text AS woken_routes"},
    (SELECT keys FROM contended) AS contended, (SELECT ids FROM refused)::text AS refused`,
    });
    texts.set(key, text);
  }
  return text;
}
