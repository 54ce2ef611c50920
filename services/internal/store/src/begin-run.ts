import { taskId as toTaskId } from "@runmesh/domain/ids";
import { EVENT_TYPES, RUN_STATES } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { changeRun } from "./change-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { runMove } from "./event-moves.ts";
import { isTaskLimited, readLimits } from "./limits.ts";
import { type LockedRun, lockRun } from "./lock-run.ts";
import { insertEvents, insertRunEvents } from "./outbox-write.ts";
import { keysOf, placeTasks } from "./place-tasks.ts";
import { insertScheduled, type PlacedTask } from "./places.ts";
import { findRunSlot, listRunSlots, noteDue, noteLater, type RunSlotRow, setRunSlotActive } from "./run-slots.ts";
import { deleteRunTimer, TIMER_KINDS } from "./run-timers.ts";
import { lockKeys, recountSlots, tryLockKeys } from "./slot-counts.ts";
import type { Placed } from "./wake-tasks.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

interface BegunRun {
  /** Routes with new ready tasks. */
  readonly routeIds: ReadonlySet<number>;
  /** The limit of a run that cancels the oldest under it, which the caller does after the commit. */
  readonly pushesOut: { readonly key: string; readonly limit: number } | undefined;
}

const NOT_BEGUN: BegunRun = { routeIds: new Set(), pushesOut: undefined };

/** Moves a PENDING run whose start time has come to RUNNING, or into the queue of its limit. Nothing where another holds it. */
export function beginDueRun(deps: Deps, p: { tenantId: number; runId: bigint }): Promise<BegunRun | undefined> {
  const { tenantId, runId } = p;
  return deps.db.transaction(async (tx) => {
    const run = await lockRun(tx, { ...p, skipLocked: true });
    if (run === undefined) return undefined;
    await deleteRunTimer(tx, { ...p, kind: TIMER_KINDS.START });
    if (run.state !== RUN_STATES.PENDING) return NOT_BEGUN;
    const slot = await findRunSlot(tx, p);
    if (slot === undefined) {
      const place = (loaded: LoadedDefinition, tasks: readonly PlacedTask[]) =>
        placeTasks(tx, { tenantId, loaded, tasks });
      return { routeIds: await begin(tx, deps.definitions, tenantId, run, place), pushesOut: undefined };
    }
    const { key, slot_limit: limit } = slot;
    const routeIds = await admitRuns(tx, deps.definitions, { tenantId, keys: [key], dueRunId: runId });
    const { definition } = await deps.definitions.get(tenantId, run.definition_id);
    const pushes = definition.concurrency?.onConflict === "cancel_oldest";
    return { routeIds, pushesOut: pushes ? { key, limit } : undefined };
  });
}

/** Runs that wait, looked at for one key at a time. */
const MAX_WAITING = 50;
/** Of those, runs that are noted to be due later at a time. What is beyond is found by the next admission. */
const MAX_LATER = 500;
const MAX_ROUNDS = 20;

/**
 * Begins waiting runs for which their limit has room, oldest first, under the key's lock. A run that another move holds
 * is passed over: that move ends it, and admits the next, or the scheduler's loop comes back.
 */
export async function admitRuns(
  tx: Db,
  definitions: DefinitionCache,
  p: {
    tenantId: number;
    keys: readonly string[];
    onDeferred?: OnDeferred | undefined;
    /** The run whose start time has come, where that is why. */
    dueRunId?: bigint;
  },
): Promise<ReadonlySet<number>> {
  const { tenantId, dueRunId } = p;
  const routes = new Set<number>();
  if (p.keys.length === 0) return routes;
  const counts = p.keys.map((key) => `w:${key}`);
  await lockKeys(tx, { tenantId, keys: counts, mayWait: true });
  for (const key of new Set(p.keys)) {
    if (dueRunId !== undefined) await noteDue(tx, { tenantId, key, runId: dueRunId });
    const slots = await listSlots(tx, tenantId, key);
    let active = slots.filter((slot) => slot.active).length;
    for (const slot of slots) {
      if (slot.active || active >= slot.slot_limit) continue;
      const run = await lockRun(tx, { tenantId, runId: slot.run_id, skipLocked: true });
      if (run === undefined || run.state !== RUN_STATES.PENDING || !run.is_due) continue;
      await setRunSlotActive(tx, { tenantId, key, runId: slot.run_id });
      const place = (loaded: LoadedDefinition, tasks: readonly PlacedTask[]) =>
        placeWithoutWaiting(tx, { tenantId, loaded, tasks, onDeferred: p.onDeferred });
      for (const route of await begin(tx, definitions, tenantId, run, place)) routes.add(route);
      active++;
    }
  }
  await recountSlots(tx, { tenantId, keys: counts });
  return routes;
}

/** The active runs of a key and some that wait; runs that are due later are noted where they come up. */
async function listSlots(tx: Db, tenantId: number, key: string): Promise<RunSlotRow[]> {
  for (let round = 1; ; round++) {
    const slots = await listRunSlots(tx, { tenantId, key, waiting: MAX_WAITING });
    if (round === MAX_ROUNDS || !slots.some((slot) => slot.is_later)) return slots.filter((slot) => !slot.is_later);
    await noteLater(tx, { tenantId, key, looked: MAX_LATER });
  }
}

/** Told of tasks of one run that are due, for `placeDueLimited` once the transaction has ended. */
export type OnDeferred = (taskIds: readonly bigint[]) => void;

/**
 * Keys of tasks come before those of runs in the order of locks: where one cannot be had at once, the tasks are due now, and
 * the caller brings them before their limits afterwards, or else the scheduler.
 */
async function placeWithoutWaiting(
  tx: Db,
  p: {
    tenantId: number;
    loaded: LoadedDefinition;
    tasks: readonly PlacedTask[];
    onDeferred: OnDeferred | undefined;
  },
): Promise<Placed> {
  const { tenantId, loaded } = p;
  const limited = p.tasks.filter((task) => isTaskLimited(loaded, task.taskId));
  if (limited.length === 0) return placeTasks(tx, p);
  const taskIds = limited.map((task) => task.taskId);
  const limits = await readLimits(tx, tenantId, loaded, taskIds);
  const keys = limits.flatMap((of, i) => keysOf(taskIds[i]!, of));
  if (await tryLockKeys(tx, { tenantId, keys })) return placeTasks(tx, p);
  await insertScheduled(tx, { tenantId, tasks: limited.map((task) => ({ ...task, delayMs: 0, limited: true })) });
  p.onDeferred?.(taskIds);
  return placeTasks(tx, { tenantId, loaded, tasks: p.tasks.filter((task) => !isTaskLimited(loaded, task.taskId)) });
}

async function begin(
  tx: Db,
  definitions: DefinitionCache,
  tenantId: number,
  run: LockedRun,
  place: (loaded: LoadedDefinition, tasks: readonly PlacedTask[]) => Promise<Placed>,
): Promise<ReadonlySet<number>> {
  const runId = run.id;
  const loaded = await definitions.get(tenantId, run.definition_id);
  const sequence = run.sequence + 1;
  const type = EVENT_TYPES.RUN_STARTED;
  const unchanged = { ended: 0, dead: 0, skipped: 0, cancelled: 0, failing: 0, isTerminal: false, failure: undefined };
  const placed = await place(
    loaded,
    loaded.plan.roots.map((ordinal) => ({
      taskId: toTaskId(runId, ordinal),
      routeId: loaded.routeIds[ordinal]!,
      rank: loaded.ranks[ordinal]!,
      attempt: 0,
      failures: 0,
      losses: 0,
    })),
  );
  await changeRun(tx, { tenantId, runId, state: RUN_STATES.RUNNING, sequence, ...unchanged });
  await insertRunEvents(tx, { tenantId, runId, principal: "", events: [{ sequence, type, taskId: null }] });
  await insertEvents(tx, { tenantId, runId, definitionId: run.definition_id, events: [runMove(sequence, type)] });
  return admitTo(tx, { tenantId, placed });
}
