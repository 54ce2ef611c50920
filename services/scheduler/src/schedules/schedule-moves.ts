import { MeshError } from "@runmesh/domain/errors";
import { digestOf } from "@runmesh/platform/digest";
import type { Principal } from "@runmesh/platform/principal";
import { insertAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";
import { noteRequest } from "@runmesh/store/requests";
import { findTriggeredRun, listActiveRuns, noteTriggeredRun } from "@runmesh/store/schedule-ticks";
import {
  advanceSchedule,
  changeSchedule,
  countSchedules,
  deleteSchedule,
  insertSchedule,
  lockSchedule,
  readClock,
  type ScheduleRow,
  setSchedulePaused,
} from "@runmesh/store/schedules";
import { readCron } from "../cron.ts";
import { DeferredCancels } from "../deferred-cancels.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";
import type { WantedSchedule } from "./schedule-message.ts";
import { rootRoutes, startTriggered } from "./start-scheduled.ts";
import { overlapOf } from "./tick-schedule.ts";

const MAX_SCHEDULES = 10_000;

export const missingSchedule = (name: string) => new MeshError("NOT_FOUND", `no schedule ${name}`);

/** Creates a schedule or changes the one of that name. Its ticks go on where its pattern and zone are unchanged. */
export function putSchedule(
  db: Db,
  principal: Principal,
  wanted: WantedSchedule,
): Promise<{ row: ScheduleRow; created: boolean }> {
  const { tenantId } = principal;
  const { next } = readCron(wanted.cron, wanted.timeZone);
  const nextAfter = (now: Date) => dateOf(next(now.getTime()));
  return db.transaction(async (tx) => {
    const before = await lockSchedule(tx, { tenantId, name: wanted.name });
    if (before !== undefined) {
      const sameClock = before.cron === wanted.cron && before.time_zone === wanted.timeZone;
      const nextAt = before.paused ? undefined : sameClock ? (before.next_at ?? undefined) : nextAfter(before.now);
      const row = await changeSchedule(tx, { tenantId, id: before.id, nextAt, ...wanted });
      await auditSchedule(tx, principal, "schedule.put", wanted.name);
      return { row, created: false };
    }
    if ((await countSchedules(tx, { tenantId })) >= MAX_SCHEDULES) {
      throw new MeshError("TOO_LARGE", `a tenant has at most ${MAX_SCHEDULES} schedules`);
    }
    const nextAt = wanted.paused ? undefined : nextAfter(await readClock(tx));
    const row = await insertSchedule(tx, { tenantId, nextAt, ...wanted });
    // The name was taken a moment ago, by the same wish or another: the caller's repeat finds it.
    if (row === undefined) throw new MeshError("UNAVAILABLE", "another call puts this schedule", { retryAfterMs: 20 });
    await auditSchedule(tx, principal, "schedule.put", wanted.name);
    return { row, created: true };
  });
}

/** Pauses or resumes. A resumed schedule goes on with the next tick from now. */
export function moveSchedule(
  db: Db,
  principal: Principal,
  name: string,
  paused: boolean,
  requestId: string,
): Promise<ScheduleRow> {
  const { tenantId } = principal;
  return db.transaction(async (tx) => {
    const row = await lockSchedule(tx, { tenantId, name });
    if (row === undefined) throw missingSchedule(name);
    const move = paused ? "schedule.pause" : "schedule.resume";
    if (requestId !== "") {
      // A repeat changes nothing, whoever moved the schedule back meanwhile.
      const digest = digestOf(`${move}:${row.id}:${requestId}`);
      if (!(await noteRequest(tx, { tenantId, digest }))) return row;
    }
    if (row.paused === paused) return row;
    const nextAt = paused ? undefined : dateOf(readCron(row.cron, row.time_zone).next(row.now.getTime()));
    await auditSchedule(tx, principal, move, name);
    return setSchedulePaused(tx, { tenantId, id: row.id, paused, nextAt });
  });
}

export function dropSchedule(db: Db, principal: Principal, name: string, requestId: string): Promise<void> {
  const { tenantId } = principal;
  return db.transaction(async (tx) => {
    if (requestId !== "") {
      const isFirst = await noteRequest(tx, { tenantId, digest: digestOf(`schedule.delete:${name}:${requestId}`) });
      if (!isFirst) return;
    }
    if (!(await deleteSchedule(tx, { tenantId, name }))) throw missingSchedule(name);
    await auditSchedule(tx, principal, "schedule.delete", name);
  });
}

/** Starts a run now. Later ticks see it as active. */
export async function triggerSchedule(
  deps: ScheduleDeps,
  principal: Principal,
  name: string,
  requestId: string,
): Promise<{ readonly runId: bigint; readonly created: boolean }> {
  const { tenantId } = principal;
  await deps.gauge.refuseWhenFull();
  const done = await deps.db.transaction(async (tx) => {
    const schedule = await lockSchedule(tx, { tenantId, name });
    if (schedule === undefined) throw missingSchedule(name);
    const ofSchedule = { tenantId, scheduleId: schedule.id };
    const request = requestId === "" ? undefined : digestOf(`schedule.trigger:${schedule.id}:${requestId}`);
    const earlier = request && (await findTriggeredRun(tx, { ...ofSchedule, request }));
    if (earlier) return earlier.run_id;
    const pushedOut = new DeferredCancels({ ...deps, db: tx });
    const run = await startTriggered(deps, { tx, pushedOut }, schedule, request ?? "", principal.name);
    // Its tick is forgotten, its key is not.
    if (!run.created) return run.runId;
    // Closes what has ended: a schedule that is only ever triggered has nobody else to do so.
    await listActiveRuns(tx, ofSchedule);
    await noteTriggeredRun(tx, { ...ofSchedule, runId: run.runId, open: overlapOf(schedule) !== "ALLOW", request });
    await advanceSchedule(tx, {
      tenantId,
      id: schedule.id,
      nextAt: schedule.next_at ?? undefined,
      lastAt: undefined,
      lastRunId: run.runId,
      started: 0,
      skipped: 0,
      missed: 0,
      buffered: 0,
    });
    await auditSchedule(tx, principal, "schedule.trigger", name);
    return { run, pushedOut };
  });
  if (typeof done === "bigint") return { runId: done, created: false };
  await done.pushedOut.perform(deps.moves);
  for (const routeId of rootRoutes(done.run)) deps.wakeups.notify(`ready:${routeId}`);
  deps.wakeups.notify("outbox");
  return { runId: done.run.runId, created: true };
}

export const auditSchedule = (db: Db, { tenantId, name: principal, origin }: Principal, action: string, name: string) =>
  insertAudit(db, { tenantId, principal, origin, action, target: `schedule/${name}`, result: "done" });

const dateOf = (ms: number | undefined) => (ms === undefined ? undefined : new Date(ms));
