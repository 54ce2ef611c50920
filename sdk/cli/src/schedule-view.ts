import {
  type Schedule,
  Schedule_Overlap,
  Schedule_OverlapSchema,
  ScheduleSchema,
} from "@runmesh/contracts/schedule/v1/schedule_pb";
import { enumName, toShape } from "./json-shape.ts";
import { textOf } from "./run-view.ts";
import { type Column, formatRecord } from "./table.ts";
import { formatTime } from "./times.ts";

/** How a schedule is shown, to people and to scripts. */

export const SCHEDULE_COLUMNS: readonly Column<Schedule>[] = [
  { title: "SCHEDULE", read: (schedule) => schedule.name },
  { title: "CRON", read: (schedule) => schedule.cron },
  { title: "ZONE", read: (schedule) => schedule.timeZone },
  { title: "WORKFLOW", read: workflowOf },
  { title: "OVERLAP", read: overlapOf },
  { title: "NEXT (UTC)", read: nextOf },
  { title: "LAST RUN", read: lastRunOf },
  { title: "STARTED", align: "right", read: (schedule) => String(schedule.ticks?.started ?? 0n) },
  { title: "SKIPPED", align: "right", read: (schedule) => String(schedule.ticks?.skipped ?? 0n) },
  { title: "MISSED", align: "right", read: (schedule) => String(schedule.ticks?.missed ?? 0n) },
];

export function scheduleShape(schedule: Schedule): Record<string, unknown> {
  return toShape(ScheduleSchema, schedule);
}

export function formatSchedule(schedule: Schedule): string[] {
  const { started = 0n, skipped = 0n, missed = 0n, buffered = 0 } = schedule.ticks ?? {};
  return formatRecord([
    ["schedule", schedule.name],
    ["cron", `${schedule.cron} in ${schedule.timeZone}`],
    ["workflow", workflowOf(schedule)],
    ["overlap", overlapOf(schedule)],
    ["catch-up", schedule.catchUpWindow],
    ["next", nextOf(schedule)],
    ["then", schedule.upcomingTimes.slice(1).map(formatTime).join(", ")],
    ["last tick", formatTime(schedule.lastTime)],
    ["last run", lastRunOf(schedule)],
    ["ticks", `${started} started, ${skipped} skipped, ${missed} missed, ${buffered} buffered`],
    [
      "labels",
      Object.entries(schedule.labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(" "),
    ],
    ["input", schedule.inputPayload.case === "inputJson" ? textOf(schedule.inputPayload.value) : ""],
    ["created", formatTime(schedule.createTime)],
    ["changed", formatTime(schedule.updateTime)],
  ]);
}

function workflowOf(schedule: Schedule): string {
  return schedule.version === 0 ? schedule.workflow : `${schedule.workflow}@${schedule.version}`;
}

/** "buffer-one", as the option takes it. */
function overlapOf(schedule: Schedule): string {
  return OVERLAPS.get(schedule.overlap) ?? enumName(Schedule_OverlapSchema, schedule.overlap);
}

const OVERLAPS = new Map<Schedule_Overlap, string>([
  [Schedule_Overlap.SKIP, "skip"],
  [Schedule_Overlap.BUFFER_ONE, "buffer-one"],
  [Schedule_Overlap.BUFFER_ALL, "buffer-all"],
  [Schedule_Overlap.CANCEL_PREVIOUS, "cancel-previous"],
  [Schedule_Overlap.ALLOW, "allow"],
]);

export const OVERLAP_NAMES = [...OVERLAPS.values()];

/** Undefined where there is no such policy. */
export function findOverlap(name: string): Schedule_Overlap | undefined {
  return [...OVERLAPS].find(([, known]) => known === name)?.[0];
}

function nextOf(schedule: Schedule): string {
  return schedule.paused ? "paused" : formatTime(schedule.nextTime);
}

function lastRunOf(schedule: Schedule): string {
  return schedule.lastRunId === 0n ? "" : String(schedule.lastRunId);
}
