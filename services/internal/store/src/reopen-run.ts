import { taskId as toTaskId } from "@runmesh/domain/ids";
import { type Reopening, recompute } from "@runmesh/domain/recompute";
import {
  EVENT_TYPES,
  isTerminalTask,
  type RunState,
  readRunState,
  readTaskState,
  TASK_STATES,
} from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { insertAudit } from "./audit.ts";
import { reopenRunRow } from "./change-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { runMove } from "./event-moves.ts";
import { isTaskLimited } from "./limits.ts";
import { type LockedRun, lockRun } from "./lock-run.ts";
import { insertEvents, insertRunEvents, type NewEvent } from "./outbox-write.ts";
import { placeTasks } from "./place-tasks.ts";
import { insertScheduled } from "./places.ts";
import { listReopened, type ReopenedTask } from "./reopened-tasks.ts";
import { hasRequest, noteRequest } from "./requests.ts";
import { renewEndedChildren } from "./step-failures.ts";
import { deleteSteps } from "./steps.ts";
import { haveChildrenFollow } from "./stray-children.ts";
import { listTaskStates } from "./task-states.ts";
import { reopenTasks } from "./tasks.ts";

export interface ReopenRun {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly principal: string;
  readonly origin?: string | undefined;
  /** Digest of the request id: the same again changes nothing. */
  readonly digest: string | undefined;
  /** Every task that did not succeed, or the dead letters of these ordinals and what is downstream. */
  readonly reopen: "all" | readonly number[];
  /** Forgets what handlers of the reopened tasks recorded. */
  readonly fresh?: boolean | undefined;
}

export type ReopenOutcome =
  | { readonly kind: "missing" }
  | { readonly kind: "refused"; readonly state: RunState }
  /** A dead letter that is none (any more). */
  | { readonly kind: "not_dead" }
  | { readonly kind: "done"; readonly moved: boolean; readonly wokenRoutes: ReadonlySet<number> };

/** End events by the state that a run ended in. */
const END_EVENTS: Partial<Record<RunState, number>> = {
  FAILED: EVENT_TYPES.RUN_FAILED,
  CANCELLED: EVENT_TYPES.RUN_CANCELLED,
  TIMED_OUT: EVENT_TYPES.RUN_TIMED_OUT,
};

/**
 * Opens an ended run again: a retry of all, or a replay of dead letters. States and counters are derived anew by the
 * domain; results are kept, attempt numbers and fences go on, failure and loss counters, deadline and timers begin
 * anew (B-2). The end that this undoes goes into the run's history (G3).
 */
export function reopenRun(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  p: ReopenRun,
): Promise<ReopenOutcome> {
  return deps.db.transaction(async (tx) => {
    const { tenantId, runId } = p;
    const run = await lockRun(tx, { tenantId, runId });
    if (run === undefined) return { kind: "missing" };
    // Under the run's lock, so that no other can note it meanwhile. A refusal leaves it free for a later try.
    if (p.digest !== undefined && (await hasRequest(tx, { tenantId, digest: p.digest }))) {
      return { kind: "done", moved: false, wokenRoutes: new Set() };
    }
    const state = readRunState(run.state);
    const endEvent = END_EVENTS[state];
    if (endEvent === undefined) return { kind: "refused", state };
    const loaded = await deps.definitions.get(tenantId, run.definition_id);
    const { plan, definition } = loaded;
    const { states } = await listTaskStates(tx, { tenantId, runId, taskCount: plan.taskCount });
    const stateOf = (ordinal: number) => readTaskState(states[ordinal]!);
    if (p.reopen !== "all" && p.reopen.some((ordinal) => stateOf(ordinal) !== "DEAD")) return { kind: "not_dead" };
    if (p.digest !== undefined) await noteRequest(tx, { tenantId, digest: p.digest });
    const reopening = recompute(plan, definition, stateOf, p.reopen);
    await writeTasks(tx, p, reopening);
    const taskIds = [...reopening.ready, ...reopening.blocked.map(({ ordinal }) => ordinal)]
      .sort((a, b) => a - b)
      .map((ordinal) => toTaskId(runId, ordinal));
    if (!p.fresh) await renewEndedChildren(tx, { tenantId, taskIds });
    else if ((await deleteSteps(tx, { tenantId, taskIds })).length > 0) {
      // Children that only the record knew do not go on.
      await haveChildrenFollow(tx, { tenantId, runId });
    }
    for (const ordinal of reopening.ready) states[ordinal] = TASK_STATES.READY;
    for (const { ordinal } of reopening.blocked) states[ordinal] = TASK_STATES.BLOCKED;
    for (const ordinal of reopening.skipped) states[ordinal] = TASK_STATES.SKIPPED;
    await writeRun(tx, p, run, endEvent, loaded, states);
    const wokenRoutes = await place(tx, p, loaded, reopening.ready);
    return { kind: "done", moved: true, wokenRoutes };
  });
}

async function writeTasks(tx: Db, { tenantId, runId }: ReopenRun, reopening: Reopening): Promise<void> {
  const counts = [
    ...reopening.ready.map((ordinal) => ({ ordinal, pending: 0, unsuccessful: 0, state: 0 })),
    ...reopening.blocked.map((waiting) => ({ ...waiting, state: 0 })),
    ...reopening.skipped.map((ordinal) => ({ ordinal, pending: 0, unsuccessful: 0, state: TASK_STATES.SKIPPED })),
  ].sort((a, b) => a.ordinal - b.ordinal);
  await reopenTasks(tx, {
    tenantId,
    taskIds: counts.map(({ ordinal }) => toTaskId(runId, ordinal)),
    pending: counts.map((count) => count.pending),
    unsuccessful: counts.map((count) => count.unsuccessful),
    states: counts.map((count) => count.state),
  });
}

async function writeRun(
  tx: Db,
  p: ReopenRun,
  run: LockedRun,
  endEvent: number,
  loaded: LoadedDefinition,
  states: Uint8Array,
): Promise<void> {
  const { tenantId, runId, principal } = p;
  const moves =
    p.reopen === "all"
      ? [{ type: EVENT_TYPES.RUN_RETRIED, taskId: null }]
      : p.reopen.map((ordinal) => ({ type: EVENT_TYPES.TASK_REPLAYED, taskId: toTaskId(runId, ordinal) }));
  const events: NewEvent[] = moves.map((move, i) => ({
    ...runMove(run.sequence + 1 + i, move.type),
    taskId: move.taskId,
  }));
  const before = await reopenRunRow(tx, {
    tenantId,
    runId,
    sequence: run.sequence + events.length,
    ...countStates(states, loaded),
    deadlineMs: loaded.definition.deadlineMs,
  });
  await insertRunEvents(tx, {
    tenantId,
    runId,
    principal: before.cancelled_by ?? "",
    comment: before.cancel_comment ?? "",
    events: [{ sequence: run.sequence, type: endEvent, taskId: null, at: before.finished_at }],
  });
  await insertRunEvents(tx, { tenantId, runId, principal, events });
  await insertEvents(tx, { tenantId, runId, definitionId: run.definition_id, events });
  const action = p.reopen === "all" ? "run.retry" : "task.replay";
  const targets = p.reopen === "all" ? [`run/${runId}`] : p.reopen.map((at) => `task/${toTaskId(runId, at)}`);
  for (const target of targets) {
    await insertAudit(tx, { tenantId, principal, origin: p.origin, action, target, result: "done" });
  }
}

function countStates(states: Uint8Array, { definition }: LoadedDefinition) {
  const counts = { open: 0, dead: 0, skipped: 0, cancelled: 0, failing: 0 };
  for (const [ordinal, code] of states.entries()) {
    const state = readTaskState(code);
    if (!isTerminalTask(state)) counts.open++;
    if (state === "DEAD") counts.dead++;
    if (state === "DEAD" && !definition.tasks[ordinal]!.allowFailure) counts.failing++;
    if (state === "SKIPPED") counts.skipped++;
    if (state === "CANCELLED") counts.cancelled++;
  }
  return counts;
}

async function place(
  tx: Db,
  { tenantId, runId }: ReopenRun,
  loaded: LoadedDefinition,
  ordinals: readonly number[],
): Promise<ReadonlySet<number>> {
  const before = new Map<bigint, ReopenedTask>();
  for (const task of await listReopened(tx, { tenantId, runId })) before.set(task.task_id, task);
  const tasks = ordinals.map((ordinal) => {
    const taskId = toTaskId(runId, ordinal);
    const routeId = loaded.routeIds[ordinal]!;
    const last = before.get(taskId);
    // An exclusive task's handler may still run: it is not leased again before its last lease would have ended.
    const delayMs = loaded.routes[ordinal]!.exclusive ? (last?.exclusive_wait_ms ?? 0) : 0;
    const rank = loaded.ranks[ordinal]!;
    return { taskId, routeId, rank, attempt: last?.number ?? 0, failures: 0, losses: 0, delayMs };
  });
  const later = tasks.filter((task) => task.delayMs > 0);
  const now = tasks.filter((task) => task.delayMs <= 0);
  if (later.length > 0) {
    const flagged = later.map((task) => ({ ...task, limited: isTaskLimited(loaded, task.taskId) }));
    await insertScheduled(tx, { tenantId, tasks: flagged });
  }
  return admitTo(tx, { tenantId, placed: await placeTasks(tx, { tenantId, loaded, tasks: now }) });
}
