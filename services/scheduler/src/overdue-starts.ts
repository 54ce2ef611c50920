import { runIdOf } from "@runmesh/domain/ids";
import { MESH_ERROR_TYPES } from "@runmesh/domain/retry";
import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import {
  listOverdueLeases,
  listOverdueStarts,
  lockOverdueLeases,
  takeOverdueStarts,
} from "@runmesh/store/overdue-starts";
import { type LeaseError, settleRun } from "@runmesh/store/settle-run";
import { Resting } from "./resting.ts";
import { tellLost } from "./tell-lost.ts";

const BATCH = 500;
const REST_MS = 2_000;

const OVERDUE: LeaseError = {
  type: MESH_ERROR_TYPES.SCHEDULE_TO_START,
  message: Buffer.from("No worker started the task within schedule_to_start."),
  retryable: false,
  details: null,
};

/** Ends tasks whose handler no worker started within schedule-to-start, leased or not: DEAD, not retried. */
export function createOverdueStarts(deps: { db: Db; definitions: DefinitionCache; wakeups: Wakeups; log: Log }): Loop {
  const { db, definitions, wakeups, log } = deps;
  const resting = new Resting<bigint>();

  async function end(tenantId: number, runId: bigint, taskIds: readonly bigint[]): Promise<void> {
    const sessions = new Set<bigint>();
    const outcome = await settleRun(
      { db, definitions, random: Math.random },
      {
        tenantId,
        runId,
        ended: taskIds.map((taskId) => ({ taskId, fence: 0n, outcome: "TIMED_OUT", error: OVERDUE })),
        async lockLeases(tx) {
          const ready = await takeOverdueStarts(tx, { tenantId, taskIds });
          const leased = await lockOverdueLeases(tx, { tenantId, taskIds });
          for (const lease of leased) sessions.add(lease.session_id);
          return [...ready, ...leased];
        },
        skipLocked: true,
      },
    );
    if (outcome.kind !== "settled") return;
    for (const route of outcome.wokenRoutes) wakeups.notify(`ready:${route}`);
    tellLost(wakeups, outcome.lost);
    for (const sessionId of sessions) wakeups.notify(`lost:${sessionId}`);
    wakeups.notify(`run:${runId}`);
    wakeups.notify("outbox");
  }

  /** Each run on its own: one that cannot be moved holds up no other. */
  async function endAlone(tenantId: number, runId: bigint, taskIds: readonly bigint[]): Promise<void> {
    try {
      await end(tenantId, runId, taskIds);
    } catch (error) {
      resting.add(runId, REST_MS);
      log.error({ tenantId, runId, error }, "tasks that nobody started could not be ended; it will be tried again");
    }
  }

  return createLoop({
    name: "overdue-starts",
    intervalMs: 500,
    log,
    async runOnce(signal) {
      const ready = await listOverdueStarts(db, { limit: BATCH });
      const leased = await listOverdueLeases(db, { limit: BATCH });
      const overdue = [...ready, ...leased];
      const runs = Map.groupBy(overdue, (task) => `${task.tenant_id}/${runIdOf(task.task_id)}`);
      const asleep = new Set(resting.list());
      for (const tasks of runs.values()) {
        if (signal.aborted) return { again: false };
        const taskIds = tasks.map((task) => task.task_id);
        const runId = runIdOf(taskIds[0]!);
        if (!asleep.has(runId)) await endAlone(tasks[0]!.tenant_id, runId, taskIds);
      }
      return { again: ready.length === BATCH || leased.length === BATCH };
    },
  });
}
