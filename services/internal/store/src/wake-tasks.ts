import { runIdOf } from "@runmesh/domain/ids";
import { admitTo } from "./admission.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { isTaskLimited } from "./limits.ts";
import { placeTasks } from "./place-tasks.ts";
import { insertHeld, type PlacedTask } from "./places.ts";
import { findRunDefinitions } from "./runs.ts";
import { answerDueWaits } from "./step-waits.ts";
import { takeDueSuspended, takeSuspended, type WokenRow } from "./suspended.ts";

/**
 * Moves suspended tasks on. Invariants:
 *   1. A wake answers the waits that woke the task, takes its place and gives it the next, in one transaction (I-12).
 *   2. It needs no run lock: work flows one way. Who pauses or cancels the run sweeps `suspended` first, and waits there
 *      for a wake in flight, whose placement the next sweep sees; a wake that comes later reads that the run is paused.
 *   3. A woken task passes its limits anew: it gave its slots back when it was suspended.
 */
export interface Placed {
  readonly routeIds: ReadonlySet<number>;
  /** Keys of limits to admit by, at the end of the transaction. */
  readonly keys: readonly string[];
}

export const NOTHING_PLACED: Placed = { routeIds: new Set(), keys: [] };

/** Wakes one task, whose waits are answered. Nothing is placed where it is not suspended any more. */
export async function wakeTask(
  tx: Db,
  definitions: DefinitionCache,
  p: { tenantId: number; taskId: bigint },
): Promise<Placed> {
  const row = await takeSuspended(tx, p);
  return row === undefined ? NOTHING_PLACED : placeWoken(tx, definitions, p.tenantId, [row]);
}

/** Wakes tasks whose time has come; answers the routes that have new ready tasks. */
export function wakeDueTasks(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  p: { tenantId: number; taskIds: readonly bigint[] },
): Promise<ReadonlySet<number>> {
  return deps.db.transaction(async (tx) => {
    const rows = await takeDueSuspended(tx, p);
    if (rows.length === 0) return new Set<number>();
    const taskIds = rows.map((row) => row.task_id);
    await answerDueWaits(tx, { tenantId: p.tenantId, taskIds });
    const placed = await placeWoken(tx, deps.definitions, p.tenantId, rows);
    return admitTo(tx, { tenantId: p.tenantId, placed });
  });
}

async function placeWoken(
  tx: Db,
  definitions: DefinitionCache,
  tenantId: number,
  rows: readonly WokenRow[],
): Promise<Placed> {
  const routeIds = new Set<number>();
  const keys: string[] = [];
  const byRun = Map.groupBy(rows, (row) => runIdOf(row.task_id));
  const runIds = [...byRun.keys()].sort((a, b) => (a < b ? -1 : 1));
  for (const run of await findRunDefinitions(tx, { tenantId, runIds })) {
    const loaded = await definitions.get(tenantId, run.definition_id);
    const woken = byRun.get(run.run_id)!;
    const held = woken.filter((row) => row.paused).map(toTask);
    const free = woken.filter((row) => !row.paused).map(toTask);
    if (held.length > 0) {
      const tasks = held.map((task) => ({ ...task, delayMs: 0, limited: isTaskLimited(loaded, task.taskId) }));
      await insertHeld(tx, { tenantId, tasks, reason: 1 });
    }
    if (free.length === 0) continue;
    const placed = await placeTasks(tx, { tenantId, loaded, tasks: free });
    for (const routeId of placed.routeIds) routeIds.add(routeId);
    keys.push(...placed.keys);
  }
  return { routeIds, keys };
}

const toTask = (row: WokenRow): PlacedTask => ({
  taskId: row.task_id,
  routeId: row.route_id,
  rank: row.rank,
  attempt: row.attempt,
  failures: row.failures,
  losses: row.losses,
});
