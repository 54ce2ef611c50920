import { taskId as toTaskId } from "@runmesh/domain/ids";
import { admitFreed } from "./admit-freed.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { limitsOf, NO_LIMITS, resolveKey, type TaskLimits } from "./limits.ts";
import { keysOf } from "./place-tasks.ts";
import { countRunSlots } from "./run-slots.ts";
import { lockKeys } from "./slot-counts.ts";
import { findStartKeys } from "./start-keys.ts";
import type { NewRun } from "./start-runs.ts";
import { type LimitsOfStart, startWithinLimits } from "./start-within-limits.ts";

interface LimitedRun {
  readonly run: NewRun;
  readonly loaded: LoadedDefinition;
}

interface Deps {
  readonly hot: Db;
  readonly definitions: DefinitionCache;
}

interface LimitedStart {
  readonly tenantId: number;
  readonly principal: string;
  /** In ascending order of id. */
  readonly runs: readonly NewRun[];
  /** Those that must pass limits, in the same order. */
  readonly limited: readonly LimitedRun[];
}

interface LimitedOutcome {
  readonly started: ReadonlySet<bigint>;
  /** Not started, as their limit has no room and wants them refused. */
  readonly refused: ReadonlySet<bigint>;
}

/**
 * Starts runs some of which must pass limits, and lets these and their first tasks in as far as there is room: in one
 * statement, and what is contended is admitted after it, by the scheduler's loop where a crash cuts that off. Where a run
 * may be refused, or something wants slots of two keys, all of it is one transaction (slot-counts.ts).
 */
export async function startLimitedRuns(deps: Deps, p: LimitedStart): Promise<LimitedOutcome> {
  if (p.limited.some((item) => isRefusable(item) || mayWantTwo(item.loaded))) {
    return deps.hot.transaction((tx) => startInTransaction(tx, deps.definitions, p));
  }
  const { started, contended } = await startWithinLimits(deps.hot, p, readLimits(p.limited));
  if (contended.length > 0) await admitAfterwards(deps, p.tenantId, contended);
  return { started, refused: new Set() };
}

/**
 * The runs are started, whatever becomes of this: an error of it must not have the caller start them again. The
 * scheduler's loop does the same within a moment, and tells of what is wrong.
 */
const admitAfterwards = ({ hot, definitions }: Deps, tenantId: number, keys: readonly string[]): Promise<unknown> =>
  hot.transaction((tx) => admitFreed(tx, definitions, { tenantId, keys })).catch(() => undefined);

async function startInTransaction(tx: Db, definitions: DefinitionCache, p: LimitedStart): Promise<LimitedOutcome> {
  const { tenantId, principal } = p;
  const refused = await refuseWithoutRoom(tx, tenantId, p.limited);
  const runs = p.runs.filter((run) => !refused.has(run.runId));
  if (runs.length === 0) return { started: new Set(), refused };
  const limits = readLimits(p.limited);
  const { started, contended, uncounted } = await startWithinLimits(tx, { tenantId, principal, runs }, limits);
  if (contended.length > 0) {
    const keys = uncounted.flatMap((root) => keysOf(root.taskId, limits.ofRoot(root)));
    await admitFreed(tx, definitions, { tenantId, keys: [...contended, ...keys] });
  }
  return { started, refused };
}

const isRefusable = ({ loaded }: LimitedRun) => loaded.definition.concurrency?.onConflict === "refuse";

/** Whether a task may want slots of two keys, or its run's and one of its own. */
const mayWantTwo = ({ definition }: LoadedDefinition): boolean => {
  const ofRun = definition.concurrency !== undefined;
  const ofParallel = definition.maxParallel > 0;
  const ofTask = definition.tasks.some((task) => task.concurrency !== undefined);
  return Number(ofRun) + Number(ofParallel) + Number(ofTask) > 1;
};

/**
 * Newcomers that their limit refuses. Counted under the keys' locks, so that twelve at once are not all let in. As keys are
 * locked in one order, all that this batch may need are locked with them.
 */
async function refuseWithoutRoom(tx: Db, tenantId: number, limited: readonly LimitedRun[]): Promise<Set<bigint>> {
  const refusable = limited.filter(isRefusable);
  const refused = new Set<bigint>();
  if (refusable.length === 0) return refused;
  await lockKeys(tx, { tenantId, keys: limited.flatMap(allKeysOf), mayWait: true });
  const known = await findKnown(tx, tenantId, refusable);
  const taken = new Map<string, number>();
  for (const item of refusable) {
    // What was started before, or has a twin in this batch, takes no place.
    if (known.has(nameOfStart(item.run))) continue;
    const { key, runId, limit } = toRunSlot(item);
    const used = taken.get(key) ?? (await countRunSlots(tx, { tenantId, key, limit }));
    if (used >= limit) refused.add(runId);
    else known.add(nameOfStart(item.run));
    taken.set(key, used >= limit ? used : used + 1);
  }
  return refused;
}

const nameOfStart = ({ workflowId, digest }: Pick<NewRun, "workflowId" | "digest">) => `${workflowId}/${digest}`;

async function findKnown(tx: Db, tenantId: number, items: readonly LimitedRun[]): Promise<Set<string>> {
  const rows = await findStartKeys(tx, {
    tenantId,
    workflowIds: items.map(({ run }) => run.workflowId),
    digests: items.map(({ run }) => run.digest),
  });
  return new Set(rows.map((row) => nameOfStart({ workflowId: row.workflow_id, digest: row.digest })));
}

function allKeysOf(item: LimitedRun): string[] {
  const { run, loaded } = item;
  const taskIds = loaded.plan.roots.map((ordinal) => toTaskId(run.runId, ordinal));
  const input = run.input?.toString("utf8");
  return [
    ...(loaded.definition.concurrency === undefined ? [] : [`w:${toRunSlot(item).key}`]),
    ...taskIds.flatMap((taskId) => keysOf(taskId, limitsOf(loaded, taskId, input))),
  ];
}

/** The slot of a run among those that share its key. */
export function toRunSlot({ run, loaded }: LimitedRun): { key: string; runId: bigint; limit: number } {
  const { key, limit } = loaded.definition.concurrency!;
  return { key: resolveKey(key, run.input?.toString("utf8")), runId: run.runId, limit };
}

function readLimits(limited: readonly LimitedRun[]): LimitsOfStart {
  const byRun = new Map(limited.map((item) => [item.run.runId, item]));
  return {
    sharedBy(runId) {
      const item = byRun.get(runId);
      return item?.loaded.definition.concurrency && toRunSlot(item);
    },
    ofRoot({ run, taskId }): TaskLimits {
      const item = byRun.get(run.runId);
      return item === undefined ? NO_LIMITS : limitsOf(item.loaded, taskId, run.input?.toString("utf8"));
    },
  };
}
