import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { listDueSuspended } from "@runmesh/store/suspended";
import { wakeDueTasks } from "@runmesh/store/wake-tasks";

const BATCH = 500;
/** Tasks that one transaction wakes: it holds their places, and the keys of their limits, no longer than that takes. */
const CHUNK = 100;

/** Wakes suspended tasks whose sleep, or whose wait's time-out, is over by the database's clock. */
export function createWaker(deps: { db: Db; definitions: DefinitionCache; wakeups: Wakeups; log: Log }): Loop {
  return createLoop({
    name: "waker",
    intervalMs: 200,
    log: deps.log,
    async runOnce(signal) {
      const due = await listDueSuspended(deps.db, { limit: BATCH });
      for (const [tenantId, tasks] of Map.groupBy(due, (task) => task.tenant_id)) {
        const taskIds = tasks.map((task) => task.task_id).sort((a, b) => (a < b ? -1 : 1));
        for (let at = 0; at < taskIds.length; at += CHUNK) {
          if (signal.aborted) return { again: false };
          const woken = await wakeDueTasks(deps, { tenantId, taskIds: taskIds.slice(at, at + CHUNK) });
          for (const route of woken) deps.wakeups.notify(`ready:${route}`);
        }
      }
      return { again: due.length === BATCH };
    },
  });
}
