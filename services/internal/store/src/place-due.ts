import { runIdOf } from "@runmesh/domain/ids";
import { RUN_STATES } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { lockRun } from "./lock-run.ts";
import { placeTasks } from "./place-tasks.ts";
import { takeDueLimited } from "./places.ts";
import { findRunDefinitions } from "./runs.ts";

/**
 * Brings due tasks of one run before their limits; answers the routes that have new ready tasks. What must wait goes back
 * to `held`, against the direction in which a cancel or a pause sweeps: so the run is locked, or else left for later.
 */
export async function placeDueLimited(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  p: { tenantId: number; taskIds: readonly bigint[] },
): Promise<ReadonlySet<number>> {
  const { tenantId, taskIds } = p;
  const runId = runIdOf(taskIds[0]!);
  const [run] = await findRunDefinitions(deps.db, { tenantId, runIds: [runId] });
  if (run === undefined) return new Set();
  const loaded = await deps.definitions.get(tenantId, run.definition_id);
  return deps.db.transaction(async (tx) => {
    const locked = await lockRun(tx, { tenantId, runId, skipLocked: true });
    if (locked?.state !== RUN_STATES.RUNNING) return new Set<number>();
    const rows = await takeDueLimited(tx, { tenantId, taskIds });
    const tasks = rows.map((row) => ({
      taskId: row.task_id,
      routeId: row.route_id,
      rank: row.rank,
      attempt: row.attempt,
      failures: row.failures,
      losses: row.losses,
    }));
    return admitTo(tx, { tenantId, placed: await placeTasks(tx, { tenantId, loaded, tasks }) });
  });
}
