import { invalidField } from "@runmesh/domain/errors";
import { MAX_BUFFERED_TICKS } from "@runmesh/domain/schedule";
import type { Principal } from "@runmesh/platform/principal";
import type { Db } from "@runmesh/store/db";
import { bufferTicks, findKnownTicks, noteStartedTicks } from "@runmesh/store/schedule-ticks";
import { advanceSchedule, findSchedule, lockSchedule, type ScheduleRow } from "@runmesh/store/schedules";
import { readCron } from "../cron.ts";
import { DeferredCancels } from "../deferred-cancels.ts";
import { Registry } from "../registry.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";
import { auditSchedule, missingSchedule } from "./schedule-moves.ts";
import { startTicks } from "./start-scheduled.ts";
import { overlapOf, ticksAtOnce } from "./tick-schedule.ts";

export interface Backfill {
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
  /** `all` starts every tick at once, `queue` one after the other; left out, as the schedule's overlap has it. */
  readonly mode: "all" | "queue" | undefined;
}

export interface Backfilled {
  readonly tickCount: number;
  readonly knownCount: number;
}

const MAX_TICKS = 1_000;

/** Starts the ticks of a past range that have no run, each once however often it is asked. */
export async function backfillSchedule(deps: ScheduleDeps, principal: Principal, asked: Backfill): Promise<Backfilled> {
  const { tenantId } = principal;
  const schedule = await findSchedule(deps.db, { tenantId, name: asked.name });
  if (schedule === undefined) throw missingSchedule(asked.name);
  const ticks = listTicks(schedule, asked);
  const mode = asked.mode ?? (overlapOf(schedule) === "ALLOW" ? "all" : "queue");
  await deps.gauge.refuseWhenFull();
  await auditSchedule(deps.db, principal, "schedule.backfill", schedule.name);
  if (mode === "queue") {
    const queued = await deps.db.transaction((tx) => queue(tx, tenantId, asked.name, ticks));
    deps.wakeups.notify("schedules");
    return queued;
  }
  // Read before the transactions, so that they do not ask for connections while they hold one.
  const { task_count } = await new Registry(deps.db).getVersion(tenantId, schedule.workflow, schedule.version);
  const size = ticksAtOnce(task_count);
  let tickCount = 0;
  let knownCount = 0;
  for (let at = 0; at < ticks.length; at += size) {
    const done = await startChunk(deps, tenantId, asked.name, ticks.slice(at, at + size));
    tickCount += done.tickCount;
    knownCount += done.knownCount;
  }
  return { tickCount, knownCount };
}

function listTicks(schedule: ScheduleRow, { fromMs, toMs }: Backfill): number[] {
  if (toMs > schedule.now.getTime()) throw invalidField("to", "must not be in the future");
  if (fromMs >= toMs) throw invalidField("from", "must be before `to`");
  const { next } = readCron(schedule.cron, schedule.time_zone);
  const ticks: number[] = [];
  for (let at = next(fromMs - 1); at !== undefined && at < toMs; at = next(at)) {
    if (ticks.length === MAX_TICKS) {
      throw invalidField("to", `the range has more than ${MAX_TICKS} ticks: give a shorter one`, "TOO_LARGE");
    }
    ticks.push(at);
  }
  return ticks;
}

async function queue(tx: Db, tenantId: number, name: string, ticks: readonly number[]): Promise<Backfilled> {
  const { schedule, fresh } = await lockWithFresh(tx, tenantId, name, ticks);
  if (schedule.buffered_count + fresh.length > MAX_BUFFERED_TICKS) {
    const why = `${schedule.buffered_count} ticks wait and ${fresh.length} would be added: at most ${MAX_BUFFERED_TICKS} may`;
    throw invalidField("to", why, "TOO_LARGE");
  }
  await bufferTicks(tx, { tenantId, scheduleId: schedule.id, ticks: fresh });
  await advance(tx, schedule, { buffered: fresh.length });
  return { tickCount: fresh.length, knownCount: ticks.length - fresh.length };
}

async function startChunk(
  deps: ScheduleDeps,
  tenantId: number,
  name: string,
  ticks: readonly number[],
): Promise<Backfilled> {
  const { made, pushedOut } = await deps.db.transaction(async (tx) => {
    const { schedule, fresh } = await lockWithFresh(tx, tenantId, name, ticks);
    const pushedOut = new DeferredCancels({ ...deps, db: tx });
    const made = await startTicks(deps, { tx, pushedOut }, schedule, fresh);
    const open = overlapOf(schedule) !== "ALLOW";
    await noteStartedTicks(tx, { tenantId, scheduleId: schedule.id, started: made.started, open });
    await advance(tx, schedule, { started: made.started.length, lastRunId: made.started.at(-1)?.runId });
    return { made, pushedOut };
  });
  await pushedOut.perform(deps.moves);
  for (const routeId of made.routeIds) deps.wakeups.notify(`ready:${routeId}`);
  deps.wakeups.notify("outbox");
  // What was started stays; the same call again goes on with the rest.
  if (made.refused.length > 0) throw made.refused[0]!.error;
  return { tickCount: made.started.length, knownCount: ticks.length - made.started.length };
}

async function lockWithFresh(tx: Db, tenantId: number, name: string, ticks: readonly number[]) {
  const schedule = await lockSchedule(tx, { tenantId, name });
  if (schedule === undefined) throw missingSchedule(name);
  const known = await findKnownTicks(tx, { tenantId, scheduleId: schedule.id, ticks });
  return { schedule, fresh: ticks.filter((tick) => !known.has(tick)) };
}

const advance = (
  tx: Db,
  schedule: ScheduleRow,
  change: { readonly started?: number; readonly buffered?: number; readonly lastRunId?: bigint | undefined },
) =>
  advanceSchedule(tx, {
    tenantId: schedule.tenant_id,
    id: schedule.id,
    nextAt: schedule.next_at ?? undefined,
    lastAt: undefined,
    lastRunId: change.lastRunId,
    started: change.started ?? 0,
    skipped: 0,
    missed: 0,
    buffered: change.buffered ?? 0,
  });
