import { admitFreed } from "./admit-freed.ts";
import type { OnDeferred } from "./begin-run.ts";
import { int4Array, textArray } from "./binary-parameters.ts";
import {
  type Completion,
  type CompletionOutcome,
  type Dependent,
  type OutcomeRow,
  readIds,
  readOutcome,
} from "./complete-leases.ts";
import { completeLimitedStatement, type Form } from "./complete-limited-text.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import type { TaskLimits } from "./limits.ts";
import { packCompletions } from "./pack-completions.ts";
import { placeDueLimited } from "./place-due.ts";
import { keysOf } from "./place-tasks.ts";

/**
 * The hot end of a task whose run has to do with limits. Beside the invariants of complete-leases.ts:
 *   1. The slots of what ends are given back in its statement, and what follows takes its own there: both change the
 *      rows of their keys in place (slot-counts.ts), last of all locks, so that nobody's snapshot matters.
 *   2. An item whose slots others are seen to wait for is passed over, and goes again in a transaction that admits the
 *      best of them. So does what is followed by a task with two limits: refused by one it is counted anew for the other.
 *   3. Who begins to wait while the statement runs is told by the rows it locks (`contended`), and admitted at once
 *      after it. The rows are right at its commit, so that the scheduler's loop finds what a crash cuts off there.
 *   4. The last end of a run gives its place under the limit back that it shares with other runs.
 */
export async function completeLimited(
  deps: CompleteDeps,
  p: { tenantId: number; completions: readonly LimitedCompletion[]; mayWait: boolean },
): Promise<CompletionOutcome> {
  const { tenantId } = p;
  const simple = p.completions.filter(({ dependents }) => !dependents.some(hasTwoLimits));
  const alone = simple.length === 0 ? NOTHING_DONE : await completeAlone(deps, { ...p, completions: simple });
  const rest = p.completions.filter(
    ({ taskId, dependents }) => alone.busy.has(taskId) || dependents.some(hasTwoLimits),
  );
  if (rest.length === 0) return alone;
  const others = await completeInTransaction(deps, { ...p, completions: rest, tenantId });
  return {
    accepted: new Set([...alone.accepted, ...others.accepted]),
    endedRuns: [...alone.endedRuns, ...others.endedRuns],
    wokenRoutes: [...new Set([...alone.wokenRoutes, ...others.wokenRoutes])],
  };
}

interface CompleteDeps {
  readonly hot: Db;
  readonly definitions: DefinitionCache;
}

interface Completing {
  readonly tenantId: number;
  readonly completions: readonly LimitedCompletion[];
  readonly mayWait: boolean;
}

type AloneOutcome = CompletionOutcome & { readonly busy: ReadonlySet<bigint> };
const NOTHING_DONE: AloneOutcome = { accepted: new Set(), endedRuns: [], wokenRoutes: [], busy: new Set() };

const hasTwoLimits = ({ limits }: LimitedDependent) => limits.slotLimit > 0 && limits.runLimit > 0;

/** One statement; `busy` are items that it passed over. */
async function completeAlone(deps: CompleteDeps, p: Completing): Promise<AloneOutcome> {
  const { row } = await sendCompletions(deps.hot, p, "alone");
  const outcome = { ...readOutcome(row), busy: new Set(readIds(row.busy)) };
  if (row.contended === null) return outcome;
  const { tenantId } = p;
  const keys = row.contended;
  const woken = await admitDeferred(deps, tenantId, async (tx, onDeferred) => ({
    wokenRoutes: await admitFreed(tx, deps.definitions, { tenantId, keys, onDeferred }),
  }));
  return { ...outcome, wokenRoutes: [...new Set([...outcome.wokenRoutes, ...woken.wokenRoutes])] };
}

function completeInTransaction(deps: CompleteDeps, p: Completing): Promise<CompletionOutcome> {
  const { tenantId } = p;
  return admitDeferred(deps, tenantId, async (tx, onDeferred) => {
    const { row, dependents } = await sendCompletions(tx, p, "in_transaction");
    const outcome = readOutcome(row);
    if (row.contended === null) return outcome;
    const refused = new Set(readIds(row.refused));
    const keys = dependents
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

async function sendCompletions(db: Db, p: Completing, form: Form) {
  const { params, dependents: packed, oneEach } = packCompletions(p.tenantId, p.completions);
  const dependents = packed as readonly LimitedDependent[];
  const hasDependents = dependents.length > 0;
  const hasSlots = p.completions.some((completion) => completion.hasSlots);
  if (hasDependents && hasSlots) params.push(...packLimits(dependents));
  const sharesLimits = p.completions.some((completion) => completion.sharesLimit);
  const variant = { form, hasDependents, hasSlots, sharesLimits, oneEach, mayWait: p.mayWait };
  const { name, text } = completeLimitedStatement(variant);
  const row = await db.one<LimitedRow>(name, text, params);
  return { row, dependents };
}

/**
 * Runs `work` in a transaction, then what it deferred in others: the order of locks forbade to wait for it there. What a
 * crash cuts off is due, and the scheduler's.
 */
async function admitDeferred<T extends { readonly wokenRoutes: Iterable<number> }>(
  deps: CompleteDeps,
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
  /** Its run has a place under a limit that it shares with others. */
  readonly sharesLimit: boolean;
  /** Tasks of its run have limits. */
  readonly hasSlots: boolean;
  readonly dependents: readonly LimitedDependent[];
}

interface LimitedRow extends OutcomeRow {
  contended: string[] | null;
  refused: string | null;
  busy: string | null;
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
