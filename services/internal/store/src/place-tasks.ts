import { runIdOf } from "@runmesh/domain/ids";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { isTaskLimited, readLimits, runSlotKey, slotKey, type TaskLimits } from "./limits.ts";
import { insertReady, type PlacedTask } from "./places.ts";
import { insertWaiting } from "./slots.ts";

/**
 * Places tasks of one run that nothing but a limit holds up: those without one are ready at once, the others are held
 * until `admit` is called with the keys that come back, at the end of the transaction.
 */
export async function placeTasks(
  tx: Db,
  p: { tenantId: number; loaded: LoadedDefinition; tasks: readonly PlacedTask[] },
): Promise<{ routeIds: ReadonlySet<number>; keys: readonly string[] }> {
  const { tenantId, loaded } = p;
  const free = p.tasks.filter((task) => !isTaskLimited(loaded, task.taskId));
  const limited = p.tasks.filter((task) => isTaskLimited(loaded, task.taskId));
  if (free.length > 0) await insertReady(tx, { tenantId, tasks: free });
  const routeIds = new Set(free.map((task) => task.routeId));
  if (limited.length === 0) return { routeIds, keys: [] };
  const limits = await readLimits(
    tx,
    tenantId,
    loaded,
    limited.map((task) => task.taskId),
  );
  const waiting = limited.map((task, i) => ({ ...task, ...limits[i]! }));
  await insertWaiting(tx, { tenantId, tasks: waiting });
  return { routeIds, keys: waiting.flatMap((task) => keysOf(task.taskId, task)) };
}

/** The keys of a task's slots. */
export const keysOf = (taskId: bigint, limits: TaskLimits): string[] => [
  ...(limits.key === undefined ? [] : [slotKey(limits.key)]),
  ...(limits.runLimit > 0 ? [runSlotKey(runIdOf(taskId))] : []),
];
