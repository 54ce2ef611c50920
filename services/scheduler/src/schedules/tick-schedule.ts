import { listDueTicks, OVERLAPS, type Overlap, planTicks } from "@runmesh/domain/schedule";
import type { Db } from "@runmesh/store/db";
import { endRun } from "@runmesh/store/end-run";
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
import { tellLost } from "../tell-lost.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";
import { startTicks } from "./start-scheduled.ts";

const OVERLAP_NAMES = new Map(Object.entries(OVERLAPS).map(([name, value]) => [value as number, name as Overlap]));

export const overlapOf = (row: ScheduleRow): Overlap => OVERLAP_NAMES.get(row.overlap)!;

/**
 * Deals with what is due of one schedule. Invariants:
 * 1. The transaction holds the schedule's lock from the look at the clock until next_at and the runs are committed, so
 *    that of several schedulers one deals with a tick, and a crash leaves the tick due or done, never between.
 * 2. A tick has at most one row of schedule_tick and one start key, and either has its run.
 * 3. Lock order: the schedule, then its active runs ascending, then the runs that are started.
 * Answers whether there was anything to do.
 */
export async function tickSchedule(deps: ScheduleDeps, ids: { tenantId: number; id: bigint }): Promise<boolean> {
  const done = await deps.db.transaction(async (tx) => {
    const schedule = await lockDueSchedule(tx, ids);
    return schedule === undefined ? undefined : dealWith(deps, tx, schedule);
  });
  if (done === undefined) return false;
  const { wakeups, log } = deps;
  for (const { tick, error } of done.refused) {
    log.warn({ schedule: done.name, tick: new Date(tick).toISOString(), error }, "a tick was refused and is skipped");
  }
  for (const routeId of done.routeIds) wakeups.notify(`ready:${routeId}`);
  for (const { lost, runId } of done.cancelled) {
    tellLost(wakeups, lost);
    wakeups.notify(`run:${runId}`);
  }
  wakeups.notify("outbox");
  return true;
}

async function dealWith(deps: ScheduleDeps, tx: Db, schedule: ScheduleRow) {
  const { tenant_id: tenantId, id: scheduleId, name } = schedule;
  const ofSchedule = { tenantId, scheduleId };
  const overlap = overlapOf(schedule);
  const due = listDueTicks({
    nextAt: schedule.next_at?.getTime(),
    nowMs: schedule.now.getTime(),
    catchUpMs: Number(schedule.catch_up_ms),
    next: readCron(schedule.cron, schedule.time_zone).next,
  });
  // A backfill may have been here before.
  const known = await findKnownTicks(tx, { ...ofSchedule, ticks: due.ticks });
  const ticks = due.ticks.filter((tick) => !known.has(tick));
  const active = await listActiveRuns(tx, ofSchedule);
  const plan = planTicks({ overlap, ticks, isActive: active.length > 0, bufferedCount: schedule.buffered_count });

  const cancelled = plan.cancelActive ? await cancelRuns(deps, tx, schedule, active) : [];
  const buffered = await listBufferedTicks(tx, { ...ofSchedule, limit: plan.startBuffered });
  const made = await startTicks(deps, tx, schedule, [...buffered, ...plan.start]);
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
  return {
    name,
    cancelled,
    routeIds: new Set([...made.routeIds, ...cancelled.flatMap((run) => [...run.wokenRoutes])]),
    refused: made.refused,
  };
}

async function cancelRuns(deps: ScheduleDeps, tx: Db, schedule: ScheduleRow, runIds: readonly bigint[]) {
  const cancelled = [];
  for (const runId of runIds) {
    const principal = `schedule/${schedule.name}`;
    const outcome = await endRun(
      { db: tx, definitions: deps.definitions },
      { tenantId: schedule.tenant_id, runId, as: "CANCELLED", principal },
    );
    if (outcome.kind === "ended") cancelled.push({ runId, lost: outcome.lost, wokenRoutes: outcome.wokenRoutes });
  }
  return cancelled;
}

const dateOf = (ms: number | undefined) => (ms === undefined ? undefined : new Date(ms));
