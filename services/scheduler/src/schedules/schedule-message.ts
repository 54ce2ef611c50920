import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Schedule, Schedule_Overlap, ScheduleSchema } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { formatDuration, parseDuration } from "@runmesh/domain/duration";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { readName } from "@runmesh/domain/names";
import { OVERLAPS } from "@runmesh/domain/schedule";
import { readPayload } from "@runmesh/platform/payload";
import type { ScheduleRow, ScheduleSettings } from "@runmesh/store/schedules";
import { readCron } from "../cron.ts";
import { MAX_LABELS, readLabels } from "../labels.ts";
import { SCHEDULE_LABEL, TICK_LABEL } from "./start-scheduled.ts";

const DEFAULT_CATCH_UP_MS = 600_000;
/** Less would count ticks as missed that a loaded scheduler only came to late. */
const LEAST_CATCH_UP_MS = 10_000;
const RESERVED_LABELS = [SCHEDULE_LABEL, TICK_LABEL];
const UPCOMING = 5;

export interface WantedSchedule extends ScheduleSettings {
  readonly name: string;
  readonly paused: boolean;
}

/** Reads what a person wants; the workflow is not looked up. Throws INVALID_FIELD or INVALID_PAYLOAD. */
export function readSchedule(schedule: Schedule | undefined): WantedSchedule {
  if (schedule === undefined) throw invalidField("schedule", "is missing");
  const timeZone = schedule.timeZone === "" ? "UTC" : schedule.timeZone;
  const input = readPayload(schedule.inputPayload, "schedule.input");
  readCron(schedule.cron, timeZone);
  return {
    name: readName(schedule.name, "schedule.name"),
    paused: schedule.paused,
    cron: schedule.cron.trim(),
    timeZone,
    workflow: readName(schedule.workflow, "schedule.workflow"),
    version: schedule.version,
    input: input === undefined ? undefined : Buffer.from(input),
    labels: readOwnLabels(schedule.labels),
    overlap: readOverlap(schedule.overlap),
    catchUpMs: readCatchUp(schedule.catchUpWindow),
  };
}

/** As the column has it; what is not given is SKIP. */
function readOverlap(overlap: Schedule_Overlap): number {
  if (overlap === Schedule_Overlap.UNSPECIFIED) return OVERLAPS.SKIP;
  if ((Object.values(OVERLAPS) as number[]).includes(overlap)) return overlap;
  throw invalidField("schedule.overlap", "is not known");
}

function readOwnLabels(labels: Readonly<Record<string, string>>): string {
  const text = readLabels(labels, "schedule.labels", MAX_LABELS - RESERVED_LABELS.length);
  const reserved = RESERVED_LABELS.find((label) => label in labels);
  if (reserved !== undefined) throw invalidField(`schedule.labels["${reserved}"]`, "is set by the mesh");
  return text;
}

function readCatchUp(text: string): number {
  if (text === "") return DEFAULT_CATCH_UP_MS;
  const duration = parseDuration(text);
  if (!duration.ok) throw invalidField("schedule.catch_up_window", duration.why);
  if (duration.ms < LEAST_CATCH_UP_MS) throw invalidField("schedule.catch_up_window", "must be at least 10s");
  return duration.ms;
}

/** `whole` adds the input and the next ticks. */
export function writeSchedule(row: ScheduleRow, whole: boolean): Schedule {
  const message: MessageInitShape<typeof ScheduleSchema> = {
    name: row.name,
    cron: row.cron,
    timeZone: row.time_zone,
    workflow: row.workflow,
    version: row.version,
    overlap: row.overlap as Schedule_Overlap,
    catchUpWindow: formatDuration(Number(row.catch_up_ms)),
    paused: row.paused,
    labels: row.labels,
    lastRunId: row.last_run_id ?? 0n,
    ticks: {
      started: row.started_count,
      skipped: row.skipped_count,
      missed: row.missed_count,
      buffered: row.buffered_count,
    },
    createTime: timestampFromDate(row.created_at),
    updateTime: timestampFromDate(row.updated_at),
    ...(row.next_at !== null && { nextTime: timestampFromDate(row.next_at) }),
    ...(row.last_at !== null && { lastTime: timestampFromDate(row.last_at) }),
    ...(whole && row.input !== null && { inputPayload: { case: "inputJson" as const, value: row.input } }),
    ...(whole && { upcomingTimes: listUpcoming(row).map(timestampFromMs) }),
  };
  return create(ScheduleSchema, message);
}

function listUpcoming(row: ScheduleRow): number[] {
  const next = findNext(row);
  const times: number[] = [];
  for (let at = row.next_at?.getTime(); at !== undefined && times.length < UPCOMING; at = next(at)) times.push(at);
  return times;
}

/** A time zone that went with an update leaves a schedule that can be shown, paused and mended all the same. */
function findNext({ cron, time_zone: timeZone }: ScheduleRow): (afterMs: number) => number | undefined {
  try {
    return readCron(cron, timeZone).next;
  } catch (error) {
    if (error instanceof MeshError) return () => undefined;
    throw error;
  }
}
