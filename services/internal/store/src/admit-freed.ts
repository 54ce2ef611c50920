import { admit } from "./admit.ts";
import { admitRuns, type OnDeferred } from "./begin-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { placeDueLimited } from "./place-due.ts";

/** Admits by keys of every kind, tasks first; answers the routes that have new ready tasks. */
export async function admitFreed(
  tx: Db,
  definitions: DefinitionCache,
  p: { tenantId: number; keys: readonly string[]; onDeferred?: OnDeferred },
): Promise<ReadonlySet<number>> {
  const { tenantId, onDeferred } = p;
  const ofTasks = p.keys.filter((key) => !key.startsWith("w:"));
  const ofRuns = p.keys.filter((key) => key.startsWith("w:")).map((key) => key.slice(2));
  const tasks = await admit(tx, { tenantId, keys: ofTasks });
  return new Set([...tasks, ...(await admitRuns(tx, definitions, { tenantId, keys: ofRuns, onDeferred }))]);
}

/**
 * Runs `work` in a transaction, then what it deferred in others: the order of locks forbade to wait for it there. What a
 * crash cuts off is due, and the scheduler's.
 */
export async function admitDeferred<T extends { readonly wokenRoutes: Iterable<number> }>(
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
