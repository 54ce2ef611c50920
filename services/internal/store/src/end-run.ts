import { taskId as toTaskId } from "@runmesh/domain/ids";
import { EVENT_TYPES, isTerminalRun, RUN_STATES, type RunState, TASK_STATES } from "@runmesh/domain/states";
import { admit } from "./admit.ts";
import { insertAttempts } from "./attempts.ts";
import { insertAudit } from "./audit.ts";
import { admitRuns } from "./begin-run.ts";
import { cancelledAttempt } from "./cancelled-attempt.ts";
import { changeRun, noteCancellation } from "./change-run.ts";
import { tellParent } from "./child-end.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { runMove } from "./event-moves.ts";
import { deleteLeases, lockRunLeases } from "./lock-leases.ts";
import { type LockedRun, lockRun } from "./lock-run.ts";
import { insertEvents } from "./outbox-write.ts";
import { PLACES, sweepRun } from "./places.ts";
import { freeRunSlot } from "./run-slots.ts";
import { deleteRunTimers } from "./run-timers.ts";
import type { LeaseLost } from "./settle-run.ts";
import { freeRunSlots } from "./slots.ts";
import { haveChildrenFollow, holdStray } from "./stray-children.ts";
import { listTaskStates } from "./task-states.ts";
import { endTasks } from "./tasks.ts";
import { NOTHING_PLACED } from "./wake-tasks.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

export interface EndRun {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly as: "CANCELLED" | "TIMED_OUT";
  readonly principal: string;
  readonly origin?: string | undefined;
  /** Why, in words of whoever cancels. */
  readonly comment?: string | undefined;
  /** Only as a child that nobody will ask for: one whose parent was opened again stays. */
  readonly onlyStray?: boolean | undefined;
  /** A run that another move holds is not waited for: it counts as missing. */
  readonly skipLocked?: boolean | undefined;
}

export type EndRunOutcome =
  | { readonly kind: "missing" }
  | {
      readonly kind: "ended";
      readonly state: RunState;
      readonly lost: readonly LeaseLost[];
      /** Routes of tasks that had waited for the run's slots. */
      readonly wokenRoutes: ReadonlySet<number>;
      readonly moved: boolean;
    };

const STATE_NAMES = Object.keys(RUN_STATES) as RunState[];

/**
 * Cancels a run, or ends it by its deadline (G5). The run is locked, then every place a task may stand in is swept in
 * the direction that work flows, one statement each: a claim or promotion in flight is caught by the next sweep. When
 * this has committed, no completion of the run is accepted and nothing of it starts.
 */
export function endRun({ db, definitions }: Deps, p: EndRun): Promise<EndRunOutcome> {
  return db.transaction(async (tx) => {
    const { tenantId, runId } = p;
    const run = await lockRun(tx, { tenantId, runId, skipLocked: p.skipLocked ?? false });
    if (run === undefined) return { kind: "missing" };
    const state = STATE_NAMES[run.state - 1]!;
    if (isTerminalRun(state)) await deleteRunTimers(tx, { tenantId, runId });
    if (isTerminalRun(state)) return { kind: "ended", state, lost: [], wokenRoutes: new Set(), moved: false };
    if (p.onlyStray && !(await isStray(tx, p, run))) {
      return { kind: "ended", state, lost: [], wokenRoutes: new Set(), moved: false };
    }
    for (const place of PLACES) await sweepRun(tx, { place, tenantId, runId });
    const leases = await lockRunLeases(tx, { tenantId, runId });
    await deleteLeases(tx, { tenantId, taskIds: leases.map((lease) => lease.task_id) });
    if (leases.length > 0) await insertAttempts(tx, { tenantId, attempts: leases.map(cancelledAttempt) });
    const cancelled = await cancelOpenTasks(tx, p);
    await deleteRunTimers(tx, { tenantId, runId });
    const sequence = run.sequence + 1;
    const type = p.as === "CANCELLED" ? EVENT_TYPES.RUN_CANCELLED : EVENT_TYPES.RUN_TIMED_OUT;
    await changeRun(tx, {
      tenantId,
      runId,
      state: RUN_STATES[p.as],
      sequence,
      ended: cancelled,
      dead: 0,
      skipped: 0,
      cancelled,
      failing: 0,
      isTerminal: true,
      failure: undefined,
    });
    await insertEvents(tx, { tenantId, runId, definitionId: run.definition_id, events: [runMove(sequence, type)] });
    if (p.as === "CANCELLED") {
      await noteCancellation(tx, { tenantId, runId, principal: p.principal, comment: p.comment ?? "" });
      await insertAudit(tx, { ...p, action: "run.cancel", target: `run/${runId}`, result: "cancelled" });
    }
    // A child start in flight held a lease that was waited for: it is seen here.
    await haveChildrenFollow(tx, { tenantId, runId });
    const wokenRoutes = await passOn(tx, definitions, p, run);
    const lost = leases.map((lease) => ({ sessionId: lease.session_id, taskId: lease.task_id, fence: lease.fence }));
    return { kind: "ended", state: p.as, lost, wokenRoutes, moved: true };
  });
}

async function isStray(tx: Db, { tenantId, runId }: EndRun, { parent_task_id: parentTaskId }: LockedRun) {
  return parentTaskId !== null && holdStray(tx, { tenantId, runId, parentTaskId });
}

/** The parent hears of the end, and the run's slots go to who waits for them. */
async function passOn(
  tx: Db,
  definitions: DefinitionCache,
  { tenantId, runId }: EndRun,
  { parent_task_id: parentTaskId }: LockedRun,
): Promise<ReadonlySet<number>> {
  const parent =
    parentTaskId === null ? NOTHING_PLACED : await tellParent(tx, definitions, { tenantId, runId, parentTaskId });
  const freed = await freeRunSlots(tx, { tenantId, runId });
  const tasks = await admit(tx, { tenantId, keys: [...freed, ...parent.keys] });
  const keys = await freeRunSlot(tx, { tenantId, runId });
  const runs = await admitRuns(tx, definitions, { tenantId, keys });
  return new Set([...parent.routeIds, ...tasks, ...runs]);
}

/** Every task that has not ended becomes CANCELLED; answers how many. */
async function cancelOpenTasks(tx: Db, { tenantId, runId }: EndRun): Promise<number> {
  const row = await tx.one<{ task_count: number }>(
    "count_run_tasks",
    "SELECT task_count FROM run WHERE tenant_id = $1 AND id = $2",
    [tenantId, runId],
  );
  const { states } = await listTaskStates(tx, { tenantId, runId, taskCount: row.task_count });
  const ended: number[] = [TASK_STATES.SUCCEEDED, TASK_STATES.DEAD, TASK_STATES.CANCELLED, TASK_STATES.SKIPPED];
  const open: bigint[] = [];
  for (const [ordinal, state] of states.entries()) if (!ended.includes(state)) open.push(toTaskId(runId, ordinal));
  if (open.length > 0) await endTasks(tx, { tenantId, taskIds: open, state: TASK_STATES.CANCELLED });
  return open.length;
}
