import { taskId as toTaskId } from "@runmesh/domain/ids";
import { type Settlement, settleFailure } from "@runmesh/domain/settle";
import { TASK_STATES, type TaskState } from "@runmesh/domain/states";
import type { NewAttempt } from "./attempts.ts";
import { cancelledAttempt } from "./cancelled-attempt.ts";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { deleteLeases, lockRunLeases } from "./lock-leases.ts";
import { PLACES, type PlacedTask, sweepPlace } from "./places.ts";
import { listTaskStates } from "./task-states.ts";
import { countDown, endTasks, setPending } from "./tasks.ts";

/** What follows in the graph, written but for the ready tasks, which the caller places. */
export interface Unfolded {
  readonly ready: readonly PlacedTask[];
  readonly skipped: readonly number[];
  readonly cancelled: readonly number[];
  readonly lost: readonly { sessionId: bigint; taskId: bigint; fence: bigint }[];
}

interface Unfold {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly loaded: LoadedDefinition;
  /** Ordinals that ended in this transaction; the dead are written already. */
  readonly succeeded: readonly number[];
  readonly dead: readonly number[];
  /** Attempts of leases that a failure ends are added here. */
  readonly attempts: NewAttempt[];
}

const STATE_NAMES = Object.keys(TASK_STATES) as TaskState[];

/** Carries ends through the graph, under the run's lock. */
export async function unfold(tx: Db, p: Unfold): Promise<Unfolded> {
  if (p.succeeded.length + p.dead.length === 0) return { ready: [], skipped: [], cancelled: [], lost: [] };
  if (p.dead.length === 0 && p.succeeded.every((ordinal) => p.loaded.plan.isFastPath(ordinal))) {
    return countSuccesses(tx, p);
  }
  return settleGraph(tx, p);
}

/** Plain successes: one less pending on each dependent. */
async function countSuccesses(tx: Db, p: Unfold): Promise<Unfolded> {
  const { offsets, targets } = p.loaded.plan.dependents;
  const by = new Map<number, number>();
  for (const ordinal of p.succeeded) {
    for (let at = offsets[ordinal]!; at < offsets[ordinal + 1]!; at++) {
      by.set(targets[at]!, (by.get(targets[at]!) ?? 0) + 1);
    }
  }
  const ordinals = [...by.keys()].sort((a, b) => a - b);
  if (ordinals.length === 0) return { ready: [], skipped: [], cancelled: [], lost: [] };
  const rows = await countDown(tx, {
    tenantId: p.tenantId,
    taskIds: ordinals.map((ordinal) => toTaskId(p.runId, ordinal)),
    by: ordinals.map((ordinal) => by.get(ordinal)!),
    unsuccessful: ordinals.map(() => 0),
  });
  const free = rows.filter((row) => row.pending === 0 && row.state === 0).map((row) => Number(row.id & 1048575n));
  return { ready: free.map((ordinal) => fresh(p, ordinal)), skipped: [], cancelled: [], lost: [] };
}

async function settleGraph(tx: Db, p: Unfold): Promise<Unfolded> {
  const { tenantId, runId, loaded } = p;
  const { plan, definition } = loaded;
  const { states } = await listTaskStates(tx, { tenantId, runId, taskCount: plan.taskCount });
  const set = (ordinals: readonly number[], state: TaskState) => {
    for (const ordinal of ordinals) states[ordinal] = TASK_STATES[state];
  };
  const stateOf = (ordinal: number): TaskState => STATE_NAMES[states[ordinal]! - 1]!;
  set(p.succeeded, "SUCCEEDED");
  set(p.dead, "DEAD");

  const first = settleFailure(plan, definition, stateOf, [...p.dead, ...p.succeeded]);
  apply(set, first);
  // Handlers that the failure stops end at once: their leases are taken, so nothing they report will count.
  set(first.aborted, "CANCELLED");
  const second = first.aborted.length === 0 ? undefined : settleFailure(plan, definition, stateOf, first.aborted);
  if (second !== undefined) apply(set, second);
  const settled = second === undefined ? [first] : [first, second];

  const skipped = settled.flatMap((s) => s.skipped);
  const cancelled = [...settled.flatMap((s) => s.cancelled), ...first.aborted];
  const cancelledIds = cancelled.map((ordinal) => toTaskId(runId, ordinal)).sort(ascending);
  for (const place of PLACES) {
    if (cancelledIds.length > 0) await sweepPlace(tx, { place, tenantId, taskIds: cancelledIds });
  }
  // A claim in flight may have moved a task from ready to a lease before the sweep got to it.
  const lost = await endLeases(tx, p, new Set(cancelled));
  await writeEnds(tx, p, skipped, TASK_STATES.SKIPPED);
  await writeEnds(tx, p, cancelled, TASK_STATES.CANCELLED);
  await writeWaiting(tx, p, settled, stateOf);
  const ready = settled.flatMap((s) => s.ready).filter((ordinal) => stateOf(ordinal) === "READY");
  return { ready: ready.map((ordinal) => fresh(p, ordinal)), skipped, cancelled, lost };
}

function apply(set: (ordinals: readonly number[], state: TaskState) => void, settlement: Settlement): void {
  set(settlement.ready, "READY");
  set(settlement.skipped, "SKIPPED");
  set(settlement.cancelled, "CANCELLED");
}

async function endLeases(tx: Db, p: Unfold, cancelled: ReadonlySet<number>) {
  if (cancelled.size === 0) return [];
  const all = await lockRunLeases(tx, { tenantId: p.tenantId, runId: p.runId });
  const leases = all.filter((lease) => cancelled.has(Number(lease.task_id & 1048575n)));
  await deleteLeases(tx, { tenantId: p.tenantId, taskIds: leases.map((lease) => lease.task_id) });
  p.attempts.push(...leases.map(cancelledAttempt));
  return leases.map((lease) => ({ sessionId: lease.session_id, taskId: lease.task_id, fence: lease.fence }));
}

async function writeEnds(tx: Db, p: Unfold, ordinals: readonly number[], state: number): Promise<void> {
  if (ordinals.length === 0) return;
  const taskIds = ordinals.map((ordinal) => toTaskId(p.runId, ordinal)).sort(ascending);
  await endTasks(tx, { tenantId: p.tenantId, taskIds, state });
}

/** New counts of tasks that stay BLOCKED, and none pending on those that became READY. */
async function writeWaiting(
  tx: Db,
  p: Unfold,
  settled: readonly Settlement[],
  stateOf: (ordinal: number) => TaskState,
): Promise<void> {
  const counts = new Map<number, { pending: number; unsuccessful: number }>();
  for (const settlement of settled) {
    for (const waiting of settlement.waiting) counts.set(waiting.ordinal, waiting);
    for (const ordinal of settlement.ready) counts.set(ordinal, { pending: 0, unsuccessful: 0 });
  }
  const changed = [...counts].filter(([ordinal]) => ["BLOCKED", "READY"].includes(stateOf(ordinal)));
  if (changed.length === 0) return;
  changed.sort(([a], [b]) => a - b);
  await setPending(tx, {
    tenantId: p.tenantId,
    taskIds: changed.map(([ordinal]) => toTaskId(p.runId, ordinal)),
    pending: changed.map(([, count]) => count.pending),
    unsuccessful: changed.map(([, count]) => count.unsuccessful),
  });
}

const fresh = (p: Unfold, ordinal: number): PlacedTask => ({
  taskId: toTaskId(p.runId, ordinal),
  routeId: p.loaded.routeIds[ordinal]!,
  rank: p.loaded.ranks[ordinal]!,
  attempt: 0,
  failures: 0,
  losses: 0,
});

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : 1);
