import { taskId as toTaskId } from "@runmesh/domain/ids";
import { admitTo } from "./admission.ts";
import { admitRuns } from "./begin-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { resolveKey } from "./limits.ts";
import { placeTasks } from "./place-tasks.ts";
import { insertRunSlots, listRunSlots } from "./run-slots.ts";
import { lockKeys } from "./slot-counts.ts";
import { type NewRun, startRuns } from "./start-runs.ts";

interface LimitedRun {
  readonly run: NewRun;
  readonly loaded: LoadedDefinition;
}

/**
 * Starts runs some of which must pass limits: one transaction starts all, holds the first tasks of the limited ones or
 * puts the runs into their queue, and admits what there is room for. Answers the ids of those started, and of those that
 * were refused because their limit had no room.
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
    const fresh = p.limited.filter((item) => started.has(item.run.runId));
    const keys: string[] = [];
    for (const { run, loaded } of fresh) {
      if (run.waits || run.dueAtMs > 0) continue;
      keys.push(...(await placeTasks(tx, { tenantId, loaded, tasks: rootsOf(run, loaded) })).keys);
    }
    await admitTo(tx, { tenantId, placed: { routeIds: new Set(), keys } });
    const queued = fresh.filter(({ run }) => run.waits).map(toRunSlot);
    if (queued.length > 0) {
      await insertRunSlots(tx, { tenantId, slots: queued });
      await admitRuns(tx, deps.definitions, { tenantId, keys: queued.map((slot) => slot.key) });
    }
    return { started, refused };
  });
}

/** Newcomers that their limit refuses. Counted under the keys' locks, so that twelve at once are not all let in. */
async function refuseWithoutRoom(tx: Db, tenantId: number, limited: readonly LimitedRun[]): Promise<Set<bigint>> {
  const refusable = limited.filter(({ loaded }) => loaded.definition.concurrency?.onConflict === "refuse");
  const refused = new Set<bigint>();
  if (refusable.length === 0) return refused;
  const slots = refusable.map(toRunSlot);
  await lockKeys(tx, { tenantId, keys: slots.map((slot) => `w:${slot.key}`), mayWait: true });
  const taken = new Map<string, number>();
  for (const { key, runId, limit } of slots) {
    const used = taken.get(key) ?? (await listRunSlots(tx, { tenantId, key, waiting: limit })).length;
    if (used >= limit) refused.add(runId);
    taken.set(key, used >= limit ? used : used + 1);
  }
  return refused;
}

/** The slot of a run among those that share its key. */
export function toRunSlot({ run, loaded }: LimitedRun): { key: string; runId: bigint; limit: number } {
  const { key, limit } = loaded.definition.concurrency!;
  return { key: resolveKey(key, run.input?.toString("utf8")), runId: run.runId, limit };
}

const rootsOf = (run: NewRun, loaded: LoadedDefinition) =>
  loaded.plan.roots.map((ordinal) => ({
    taskId: toTaskId(run.runId, ordinal),
    routeId: loaded.routeIds[ordinal]!,
    rank: loaded.ranks[ordinal]!,
    attempt: 0,
    failures: 0,
    losses: 0,
  }));
