import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import { type Wakeups, wakeOn } from "@runmesh/platform/wakeup";
import { workThrough } from "@runmesh/platform/work-through";
import { beginDueRun } from "@runmesh/store/begin-run";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { endRun } from "@runmesh/store/end-run";
import { type DueTimer, listDueTimers, TIMER_KINDS } from "@runmesh/store/run-timers";
import { cancelChildren } from "./cancel-children.ts";
import { pushOutOlder } from "./push-out.ts";
import { Resting } from "./resting.ts";
import type { RunMoves } from "./run-moves.ts";
import { tellLost } from "./tell-lost.ts";

const BATCH = 200;
/** Each is a transaction, and the mesh has other work. */
const AT_ONCE = 4;
/** A run that another move holds, or that could not be moved, is looked at again then. */
const BUSY_REST_MS = 500;
const FAULT_REST_MS = 2_000;

/** Starts runs whose start time has come, ends those whose deadline has, and has children follow their parents. */
export function createRunTimers(deps: {
  db: Db;
  definitions: DefinitionCache;
  moves: RunMoves;
  wakeups: Wakeups;
  log: Log;
}): Loop {
  const { db, wakeups, log } = deps;
  const resting = new Resting<bigint>();

  /** False where another move holds the run. */
  async function fire(timer: DueTimer, signal: AbortSignal): Promise<boolean> {
    const { tenant_id: tenantId, run_id: runId, kind, due } = timer;
    if (kind === TIMER_KINDS.CHILDREN) {
      await cancelChildren(deps, { tenantId, runId, due }, signal);
      return true;
    }
    if (kind === TIMER_KINDS.START) {
      const begun = await beginDueRun(deps, { tenantId, runId });
      if (begun === undefined) return false;
      for (const route of begun.routeIds) wakeups.notify(`ready:${route}`);
      if (begun.pushesOut !== undefined) await pushOutOlder(deps, { tenantId, ...begun.pushesOut });
    } else {
      const outcome = await endRun(deps, { tenantId, runId, as: "TIMED_OUT", principal: "", skipLocked: true });
      if (outcome.kind !== "ended") return false;
      tellLost(wakeups, outcome.lost);
      for (const route of outcome.wokenRoutes) wakeups.notify(`ready:${route}`);
      wakeups.notify(`ended:${runId}`);
    }
    wakeups.notify(`run:${runId}`);
    wakeups.notify("outbox");
    return true;
  }

  /** Each run on its own: one that cannot be moved holds up no other, of whichever tenant. */
  async function fireAlone(timer: DueTimer, signal: AbortSignal): Promise<void> {
    const { tenant_id: tenantId, run_id: runId, kind } = timer;
    try {
      if (!(await fire(timer, signal))) resting.add(runId, BUSY_REST_MS);
    } catch (error) {
      if (signal.aborted) throw error;
      resting.add(runId, FAULT_REST_MS);
      log.error(
        { tenantId, runId, kind, error },
        "a run could not be moved when its time came; it will be tried again",
      );
    }
  }

  return createLoop({
    name: "run-timers",
    intervalMs: 200,
    wake: wakeOn(wakeups, "children"),
    log,
    async runOnce(signal) {
      const due = await listDueTimers(db, { limit: BATCH, exceptRunIds: resting.list() });
      await workThrough(due, AT_ONCE, (timer) => fireAlone(timer, signal), signal);
      return { again: !signal.aborted && due.length === BATCH };
    },
  });
}
