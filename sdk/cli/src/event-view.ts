import { AttemptOutcomeSchema, type Event, EventSchema, EventTypeSchema } from "@runmesh/contracts/event/v1/event_pb";
import { enumName, toShape } from "./json-shape.ts";
import { byWhom } from "./run-view.ts";
import type { Column } from "./table.ts";
import { printable } from "./terminal.ts";
import { formatTime } from "./times.ts";

/** How an event of a run is shown, to people and to scripts. */

export const EVENT_COLUMNS: readonly Column<Event>[] = [
  { title: "SEQ", align: "right", read: (event) => String(event.sequence) },
  { title: "TIME (UTC)", read: (event) => formatTime(event.time) },
  { title: "EVENT", read: typeOf },
  { title: "TASK", read: (event) => event.taskKey },
  { title: "ATTEMPT", align: "right", read: (event) => event.attempt || "" },
  { title: "WORKER", read: (event) => event.worker },
  { title: "WHY", read: why },
];

/** Fields that do not belong to the event's kind are left out. */
export function eventShape(event: Event): Record<string, unknown> {
  const shape = toShape(EventSchema, event);
  if (event.outcome === 0) delete shape.outcome;
  if (event.taskKey === "") delete shape.attempt;
  for (const field of ["principal", "comment"]) if (shape[field] === "") delete shape[field];
  return shape;
}

export function formatEvent(event: Event): string {
  const parts = [String(event.sequence).padStart(6), formatTime(event.time), typeOf(event).padEnd(14), event.taskKey];
  if (event.attempt !== 0) parts.push(`attempt ${event.attempt}`);
  return printable([...parts, event.worker, why(event)].filter((part) => part !== "").join("  "));
}

function typeOf(event: Event): string {
  return enumName(EventTypeSchema, event.type);
}

function why(event: Event): string {
  if (event.outcome === 0) return byWhom(event);
  const retry = event.retryTime === undefined ? "" : `again at ${formatTime(event.retryTime)}`;
  const what = [enumName(AttemptOutcomeSchema, event.outcome), event.errorType]
    .filter((part) => part !== "")
    .join(": ");
  return [what, retry].filter((part) => part !== "").join(", ");
}
