import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import { type Wakeups, wakeOn } from "@runmesh/platform/wakeup";
import { beginDueRun } from "@runmesh/store/begin-run";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { endRun } from "@runmesh/store/end-run";
import { type DueTimer, listDueTimers, TIMER_KINDS } from "@runmesh/store/run-timers";
import { cancelChildren } from "./cancel-children.ts";
import { pushOutOlder } from "./push-out.ts";
import type { RunMoves } from "./run-moves.ts";
import { tellLost } from "./tell-lost.ts";

const BATCH = 200;

/** Starts runs whose start time has come, ends those whose deadline has, and has children follow their parents. */
export function createRunTimers(deps: {
  db: Db;
  definitions: DefinitionCache;
  moves: RunMoves;
  wakeups: Wakeups;
  log: Log;
}): Loop {
  const { db, wakeups } = deps;

  async function fire(timer: DueTimer, signal: AbortSignal): Promise<void> {
    const { tenant_id: tenantId, run_id: runId, kind, due } = timer;
    if (kind === TIMER_KINDS.CHILDREN) return cancelChildren(deps, { tenantId, runId, due }, signal);
    if (kind === TIMER_KINDS.START) {
      const { routeIds, pushesOut } = await beginDueRun(deps, { tenantId, runId });
      for (const route of routeIds) wakeups.notify(`ready:${route}`);
      if (pushesOut !== undefined) await pushOutOlder(deps, { tenantId, ...pushesOut });
    } else {
      const outcome = await endRun(deps, { tenantId, runId, as: "TIMED_OUT", principal: "" });
      if (outcome.kind !== "ended") return;
      tellLost(wakeups, outcome.lost);
      for (const route of outcome.wokenRoutes) wakeups.notify(`ready:${route}`);
      wakeups.notify(`ended:${runId}`);
    }
    wakeups.notify(`run:${runId}`);
    wakeups.notify("outbox");
  }

  return createLoop({
    name: "run-timers",
    intervalMs: 200,
    wake: wakeOn(wakeups, "children"),
    log: deps.log,
    async runOnce(signal) {
      const due = await listDueTimers(db, { limit: BATCH });
      for (const timer of due) {
        if (signal.aborted) return { again: false };
        await fire(timer, signal);
      }
      return { again: due.length === BATCH };
    },
  });
}
