import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { admit } from "@runmesh/store/admit";
import { admitRuns } from "@runmesh/store/begin-run";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { placeDueLimited } from "@runmesh/store/place-due";
import { listDueLimited } from "@runmesh/store/places";
import { listWaitingRunKeys } from "@runmesh/store/run-slots";
import { removeIdleCounts } from "@runmesh/store/slot-counts";
import { listWaitingKeys } from "@runmesh/store/slots";

const BATCH = 200;
/** Rows of keys that nobody uses are looked for so often, and removed so many at a time. */
const IDLE_LOOK_MS = 60_000;
const IDLE_BATCH = 1_000;

/**
 * Brings due tasks before their limits, and comes back to what an admission had to pass over because another held a
 * lock. A slot that is freed is passed on in the transaction that frees it: this is the net below it. It also forgets the
 * counts of limits that nobody uses any more.
 */
export function createAdmission(deps: { db: Db; definitions: DefinitionCache; wakeups: Wakeups; log: Log }): Loop {
  const { db, definitions, wakeups } = deps;
  let lookedForIdleAt = Number.NEGATIVE_INFINITY;

  function wake(routes: ReadonlySet<number>): void {
    for (const route of routes) wakeups.notify(`ready:${route}`);
  }

  return createLoop({
    name: "admission",
    intervalMs: 200,
    log: deps.log,
    async runOnce(signal) {
      const due = await listDueLimited(db, { limit: BATCH });
      const runs = Map.groupBy(due, (task) => `${task.tenant_id}/${runIdOf(task.task_id)}`);
      for (const tasks of runs.values()) {
        if (signal.aborted) return { again: false };
        const taskIds = tasks.map((task) => task.task_id);
        wake(await placeDueLimited(deps, { tenantId: tasks[0]!.tenant_id, taskIds }));
      }
      for (const { tenant_id: tenantId, key } of await listWaitingKeys(db, { limit: BATCH })) {
        if (signal.aborted) return { again: false };
        wake(await db.transaction((tx) => admit(tx, { tenantId, keys: [key] })));
      }
      for (const { tenant_id: tenantId, key } of await listWaitingRunKeys(db, { limit: BATCH })) {
        if (signal.aborted) return { again: false };
        wake(await db.transaction((tx) => admitRuns(tx, definitions, { tenantId, keys: [key] })));
        wakeups.notify("outbox");
      }
      if (performance.now() - lookedForIdleAt >= IDLE_LOOK_MS) {
        const removed = await removeIdleCounts(db, { limit: IDLE_BATCH });
        if (removed < IDLE_BATCH) lookedForIdleAt = performance.now();
      }
      return { again: due.length === BATCH };
    },
  });
}
