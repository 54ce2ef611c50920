import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { type AttemptOutcome, type Event, EventSchema, type EventType } from "@runmesh/contracts/event/v1/event_pb";
import { EVENT_TYPES } from "@runmesh/domain/states";
import type { EventRow } from "@runmesh/store/outbox";
import type { EventNames } from "./event-names.ts";

const TASK_ID_SHIFT = 20n;

/** What a row of the outbox or of a run's history says, with the names its ids stand for. */
export function toEventMessage(row: EventRow, names: EventNames): Event {
  const event = create(EventSchema, {
    id: `${row.runId}-${row.sequence}`,
    type: row.type as EventType,
    tenant: names.tenant,
    runId: row.runId,
    workflow: names.workflow,
    workflowVersion: names.version,
    sequence: BigInt(row.sequence),
    time: toTimestamp(row.atMicros),
  });
  if (row.ordinal < 0) return event;
  event.taskId = (row.runId << TASK_ID_SHIFT) + BigInt(row.ordinal);
  event.taskKey = names.taskKey(row.ordinal);
  event.attempt = row.attempt;
  event.fence = row.fence;
  event.worker = names.worker;
  event.errorType = row.errorType;
  if (row.leasedAtMicros !== 0) event.leaseTime = toTimestamp(row.leasedAtMicros);
  if (row.startedAtMicros !== 0) event.startTime = toTimestamp(row.startedAtMicros);
  // The message says how an attempt ended only where its type leaves that open.
  if (row.type === EVENT_TYPES.TASK_RETRYING || row.type === EVENT_TYPES.TASK_DEAD)
    event.outcome = row.outcome as AttemptOutcome;
  if (row.type === EVENT_TYPES.TASK_RETRYING && row.retryAtMicros !== 0) {
    event.retryTime = toTimestamp(row.retryAtMicros);
  }
  return event;
}

function toTimestamp(micros: number): Timestamp {
  const seconds = Math.floor(micros / 1_000_000);
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos: (micros - seconds * 1_000_000) * 1_000 });
}
