import { taskId as toTaskId } from "@runmesh/domain/ids";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { limitsOf, resolveKey } from "./limits.ts";
import { placeStarted, type StartedLimitedRun } from "./place-started.ts";
import { keysOf } from "./place-tasks.ts";
import { countRunSlots } from "./run-slots.ts";
import { lockKeys } from "./slot-counts.ts";
import { type NewRun, startRuns } from "./start-runs.ts";

interface LimitedRun {
  readonly run: NewRun;
  readonly loaded: LoadedDefinition;
}

/**
 * Starts runs some of which must pass limits: one transaction starts all, and lets the limited ones and their first tasks
 * in as far as there is room. Answers the ids of those started, and of those that were refused because their limit had no
 * room. `runs` is in ascending order of id.
 */
export function startLimitedRuns(
  deps: { readonly hot: Db; readonly definitions: DefinitionCache },
  p: { tenantId: number; principal: string; runs: readonly NewRun[]; limited: readonly LimitedRun[] },
): Promise<{ started: ReadonlySet<bigint>; refused: ReadonlySet<bigint> }> {
  const { tenantId, principal } = p;
  return deps.hot.transaction(async (tx) => {
    const refused = await refuseWithoutRoom(tx, tenantId, p.limited);
    const runs = p.runs.filter((run) => !refused.has(run.runId));
    const started = runs.length === 0 ? new Set<bigint>() : await startRuns(tx, { tenantId, principal, runs });
    const fresh = p.limited.filter((item) => started.has(item.run.runId)).map(toStarted);
    if (fresh.length > 0) await placeStarted(tx, deps.definitions, { tenantId, runs: fresh });
    return { started, refused };
  });
}

/**
 * Newcomers that their limit refuses. Counted under the keys' locks, so that twelve at once are not all let in. As keys are
 * locked in one order, all that this batch may need are locked with them.
 */
async function refuseWithoutRoom(tx: Db, tenantId: number, limited: readonly LimitedRun[]): Promise<Set<bigint>> {
  const refusable = limited.filter(({ loaded }) => loaded.definition.concurrency?.onConflict === "refuse");
  const refused = new Set<bigint>();
  if (refusable.length === 0) return refused;
  await lockKeys(tx, { tenantId, keys: limited.map(toStarted).flatMap(allKeysOf), mayWait: true });
  const taken = new Map<string, number>();
  for (const { key, runId, limit } of refusable.map(toRunSlot)) {
    const used = taken.get(key) ?? (await countRunSlots(tx, { tenantId, key, limit }));
    if (used >= limit) refused.add(runId);
    taken.set(key, used >= limit ? used : used + 1);
  }
  return refused;
}

const allKeysOf = ({ shared, roots }: StartedLimitedRun): string[] => [
  ...(shared === undefined ? [] : [`w:${shared.key}`]),
  ...roots.flatMap((root) => keysOf(root.taskId, root.limits)),
];

/** The slot of a run among those that share its key. */
export function toRunSlot({ run, loaded }: LimitedRun): { key: string; runId: bigint; limit: number } {
  const { key, limit } = loaded.definition.concurrency!;
  return { key: resolveKey(key, run.input?.toString("utf8")), runId: run.runId, limit };
}

function toStarted(item: LimitedRun): StartedLimitedRun {
  const { run, loaded } = item;
  const input = run.input?.toString("utf8");
  return {
    runId: run.runId,
    shared: run.waits ? toRunSlot(item) : undefined,
    isLater: run.dueAtMs > 0,
    roots: loaded.plan.roots.map((ordinal) => {
      const taskId = toTaskId(run.runId, ordinal);
      const limits = limitsOf(loaded, taskId, input);
      return { taskId, routeId: loaded.routeIds[ordinal]!, rank: loaded.ranks[ordinal]!, limits };
    }),
  };
}
