import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { AttemptOutcomeSchema, type Event, EventTypeSchema } from "@runmesh/contracts/event/v1/event_pb";
import { enumName } from "./enum-name.ts";

export type RunEventType =
  | "run.created"
  | "run.started"
  | "run.paused"
  | "run.resumed"
  | "run.succeeded"
  | "run.failed"
  | "run.cancelled"
  | "run.timed_out"
  | "run.retried"
  | "task.succeeded"
  | "task.retrying"
  | "task.suspended"
  | "task.dead"
  | "task.skipped"
  | "task.replayed"
  | (string & {});

/** One change of a run, as its history keeps it. */
export interface RunEvent {
  /** "<run id>-<sequence>". */
  readonly id: string;
  readonly type: RunEventType;
  readonly runId: string;
  /** Gap-free from 1. */
  readonly sequence: number;
  readonly time: Date;
  /** Set for events of a task. */
  readonly task?: TaskOfEvent;
}

export interface TaskOfEvent {
  readonly id: string;
  readonly key: string;
  readonly attempt: number;
  readonly fence: bigint;
  readonly worker: string;
  /** How the attempt ended, as in "FAILED", for task.retrying and task.dead. */
  readonly outcome?: string;
  readonly errorType?: string;
  /** When it is due again, for task.retrying. */
  readonly retryTime?: Date;
}

export function readEvent(event: Event): RunEvent {
  return {
    id: event.id,
    type: EVENT_TYPES.get(event.type) ?? "unknown",
    runId: String(event.runId),
    sequence: Number(event.sequence),
    time: readTime(event.time) ?? new Date(0),
    ...(event.taskKey !== "" && { task: readTask(event) }),
  };
}

export function readTime(time: Timestamp | undefined): Date | undefined {
  return time && timestampDate(time);
}

function readTask(event: Event): TaskOfEvent {
  const retryTime = readTime(event.retryTime);
  return {
    id: String(event.taskId),
    key: event.taskKey,
    attempt: event.attempt,
    fence: event.fence,
    worker: event.worker,
    ...(event.outcome !== 0 && {
      outcome: enumName(AttemptOutcomeSchema, event.outcome) ?? "UNKNOWN",
    }),
    ...(event.errorType !== "" && { errorType: event.errorType }),
    ...(retryTime && { retryTime }),
  };
}

/** EVENT_TYPE_RUN_TIMED_OUT is "run.timed_out": the noun, then what happened. */
const EVENT_TYPES: ReadonlyMap<number, RunEventType> = new Map(
  EventTypeSchema.values.map((v) => [v.number, v.name.slice("EVENT_TYPE_".length).toLowerCase().replace("_", ".")]),
);
