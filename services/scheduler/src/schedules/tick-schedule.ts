import { listDueTicks, MAX_TICKS_A_LOOK, OVERLAPS, type Overlap, planTicks } from "@runmesh/domain/schedule";
import type { Db } from "@runmesh/store/db";
import { findDefinition } from "@runmesh/store/definitions";
import {
  bufferTicks,
  dropBufferedTicks,
  findKnownTicks,
  listActiveRuns,
  listBufferedTicks,
  noteStartedTicks,
} from "@runmesh/store/schedule-ticks";
import { advanceSchedule, lockDueSchedule, type ScheduleRow } from "@runmesh/store/schedules";
import { readCron } from "../cron.ts";
import { DeferredCancels } from "../deferred-cancels.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";
import { type StartedTicks, startTicks } from "./start-scheduled.ts";

/** Of one transaction, which holds the schedule's lock. */
const MAX_TASKS_AT_ONCE = 50_000;
const OVERLAP_NAMES = new Map(Object.entries(OVERLAPS).map(([name, value]) => [value as number, name as Overlap]));

export const overlapOf = (row: ScheduleRow): Overlap => OVERLAP_NAMES.get(row.overlap)!;

/**
 * Deals with what is due of one schedule. Invariants:
 * 1. The transaction holds the schedule's lock from the look at the clock until next_at and the runs are committed, so
 *    that of several schedulers one deals with a tick, and a crash leaves the tick due or done, never between.
 * 2. A tick has at most one row of schedule_tick and one start key, and either has its run.
 * 3. Lock order: the schedule, then the runs that are started. Runs that have to end first are cancelled each in a
 *    transaction of its own, and the tick, which stays due, is looked at again: who ends a run locks it before the keys of
 *    its limits, so one that holds such a key must not wait for the next run.
 * Answers whether there was anything to do.
 */
export async function tickSchedule(deps: ScheduleDeps, ids: { tenantId: number; id: bigint }): Promise<boolean> {
  const done = await deps.db.transaction(async (tx) => {
    const schedule = await lockDueSchedule(tx, ids);
    return schedule === undefined ? undefined : dealWith(deps, tx, schedule);
  });
  if (done === undefined) return false;
  const { wakeups, log } = deps;
  const by = `schedule/${done.name}`;
  for (const runId of done.cancelFirst) await deps.moves.cancelFor(ids.tenantId, runId, by);
  await done.pushedOut?.perform(deps.moves);
  for (const { tick, error } of done.refused) {
    log.warn({ schedule: done.name, tick: new Date(tick).toISOString(), error }, "a tick was refused and is skipped");
  }
  for (const routeId of done.routeIds) wakeups.notify(`ready:${routeId}`);
  wakeups.notify("outbox");
  return true;
}

/** What is left to do after the commit. */
interface Dealt {
  readonly name: string;
  /** Active runs that have to end before the tick is dealt with: nothing else was done. */
  readonly cancelFirst: readonly bigint[];
  readonly pushedOut: DeferredCancels | undefined;
  readonly routeIds: ReadonlySet<number>;
  readonly refused: StartedTicks["refused"];
}

async function dealWith(deps: ScheduleDeps, tx: Db, schedule: ScheduleRow): Promise<Dealt> {
  const { tenant_id: tenantId, id: scheduleId, name } = schedule;
  const ofSchedule = { tenantId, scheduleId };
  const overlap = overlapOf(schedule);
  const most = overlap === "ALLOW" ? await countAtOnce(tx, schedule) : MAX_TICKS_A_LOOK;
  const due = listDueTicks({
    nextAt: schedule.next_at?.getTime(),
    nowMs: schedule.now.getTime(),
    catchUpMs: Number(schedule.catch_up_ms),
    next: readCron(schedule.cron, schedule.time_zone).next,
    most,
  });
  // A backfill may have been here before.
  const known = await findKnownTicks(tx, { ...ofSchedule, ticks: due.ticks });
  const ticks = due.ticks.filter((tick) => !known.has(tick));
  const active = await listActiveRuns(tx, ofSchedule);
  const plan = planTicks({ overlap, ticks, isActive: active.length > 0, bufferedCount: schedule.buffered_count });
  if (plan.cancelActive) {
    return { name, cancelFirst: active, pushedOut: undefined, routeIds: new Set(), refused: [] };
  }

  const buffered = await listBufferedTicks(tx, { ...ofSchedule, limit: Math.min(plan.startBuffered, most) });
  const pushedOut = new DeferredCancels({ ...deps, db: tx });
  const made = await startTicks(deps, { tx, pushedOut }, schedule, [...buffered, ...plan.start]);
  await noteStartedTicks(tx, { ...ofSchedule, started: made.started, open: overlap !== "ALLOW" });
  const needless = new Set([...made.known, ...made.refused.map((item) => item.tick)]);
  await dropBufferedTicks(tx, { ...ofSchedule, ticks: buffered.filter((tick) => needless.has(tick)) });
  await bufferTicks(tx, { ...ofSchedule, ticks: plan.buffer });
  await advanceSchedule(tx, {
    tenantId,
    id: scheduleId,
    nextAt: dateOf(due.nextAt),
    lastAt: dateOf(due.lastAt),
    lastRunId: made.started.at(-1)?.runId,
    started: made.started.length,
    skipped: plan.skip.length + made.refused.length,
    missed: due.missedCount,
    buffered: plan.buffer.length - buffered.length,
  });
  return { name, cancelFirst: [], pushedOut, routeIds: made.routeIds, refused: made.refused };
}

/** Ticks that one transaction starts at most: large graphs take their time, and other schedules wait meanwhile. */
async function countAtOnce(tx: Db, { tenant_id: tenantId, workflow, version }: ScheduleRow): Promise<number> {
  const definition = await findDefinition(tx, { tenantId, workflow, version });
  return ticksAtOnce(definition?.task_count ?? 1);
}

export const ticksAtOnce = (taskCount: number): number =>
  Math.max(1, Math.min(MAX_TICKS_A_LOOK, Math.floor(MAX_TASKS_AT_ONCE / taskCount)));

const dateOf = (ms: number | undefined) => (ms === undefined ? undefined : new Date(ms));
