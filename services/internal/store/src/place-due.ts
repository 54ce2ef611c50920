import { runIdOf } from "@runmesh/domain/ids";
import { admitTo } from "./admission.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { placeTasks } from "./place-tasks.ts";
import { takeDueLimited } from "./places.ts";
import { findRunDefinitions } from "./runs.ts";

/** Brings due tasks of one run before their limits; answers the routes that have new ready tasks. */
export async function placeDueLimited(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  p: { tenantId: number; taskIds: readonly bigint[] },
): Promise<ReadonlySet<number>> {
  const { tenantId, taskIds } = p;
  const [run] = await findRunDefinitions(deps.db, { tenantId, runIds: [runIdOf(taskIds[0]!)] });
  if (run === undefined) return new Set();
  const loaded = await deps.definitions.get(tenantId, run.definition_id);
  return deps.db.transaction(async (tx) => {
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
