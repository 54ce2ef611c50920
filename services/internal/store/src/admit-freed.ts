import { admit } from "./admit.ts";
import { admitRuns, type OnDeferred } from "./begin-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";

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
