import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { AttemptOutcome } from "@runmesh/contracts/event/v1/event_pb";
import {
  type Attempt,
  type AttemptError,
  AttemptErrorSchema,
  AttemptSchema,
  CurrentLeaseSchema,
  type LogLine,
  type LogLine_Level,
  LogLineSchema,
  type Task,
  type Task_State,
  TaskSchema,
} from "@runmesh/contracts/task/v1/task_pb";
import { neighbours } from "@runmesh/domain/graph";
import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import { printable } from "@runmesh/domain/printable";
import type { LogRow } from "@runmesh/store/attempt-logs";
import type { AttemptRow } from "@runmesh/store/attempts";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import type { TaskRow } from "@runmesh/store/task-rows";
import { defined } from "./run-message.ts";

const time = (date: Date | null): Timestamp | undefined => (date === null ? undefined : timestampFromDate(date));
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A task without payloads. */
export function writeTask(row: TaskRow, loaded: LoadedDefinition): Task {
  const ordinal = ordinalOf(row.id);
  const task = loaded.definition.tasks[ordinal]!;
  return create(TaskSchema, {
    id: row.id,
    runId: runIdOf(row.id),
    key: task.key,
    handler: task.handler,
    queue: task.queue,
    requires: [...task.requires],
    priority: task.priority,
    state: row.state as Task_State,
    pendingCount: row.pending,
    dependsOn: Array.from(neighbours(loaded.plan.dependencies, ordinal), (at) => loaded.plan.keys[at]!),
    attemptCount: row.attempt_count,
    ...defined({ dueTime: time(row.due_at), lease: writeLease(row), error: writeError(row) }),
  });
}

/** Adds what only the look at one task shows. */
export function addPayloads(
  task: Task,
  loaded: LoadedDefinition,
  output: string | undefined,
  resolvedParams: string | undefined,
): Task {
  task.paramsJson = bytes(loaded.definition.tasks[ordinalOf(task.id)]!.params ?? "null");
  if (resolvedParams !== undefined) task.resolvedParamsJson = bytes(resolvedParams);
  if (output !== undefined) task.outputJson = bytes(output);
  return task;
}

function writeLease(row: TaskRow) {
  if (row.lease_fence === null) return undefined;
  return create(CurrentLeaseSchema, {
    fence: row.lease_fence,
    worker: row.lease_worker ?? "",
    progressJson: row.progress ?? new Uint8Array(),
    ...defined({
      leaseTime: time(row.leased_at),
      startTime: time(row.started_at),
      expireTime: time(row.expires_at),
    }),
  });
}

type Failed = Pick<AttemptRow, "error_type" | "error_message" | "error_details" | "retryable">;

function writeError(row: Failed): AttemptError | undefined {
  if (row.error_type === null) return undefined;
  return create(AttemptErrorSchema, {
    type: row.error_type,
    message: printable(row.error_message ?? Buffer.alloc(0)),
    retryable: row.retryable ?? false,
    detailsJson: row.error_details ?? new Uint8Array(),
  });
}

export const writeAttempt = (row: AttemptRow): Attempt =>
  create(AttemptSchema, {
    taskId: row.task_id,
    number: row.number,
    fence: row.fence,
    worker: row.worker ?? "",
    outcome: row.outcome as AttemptOutcome,
    progressJson: row.progress ?? new Uint8Array(),
    sequence: BigInt(row.sequence),
    ...defined({
      leaseTime: time(row.leased_at),
      startTime: time(row.started_at),
      endTime: time(row.ended_at),
      error: writeError(row),
    }),
  });

export const writeLogLine = (row: LogRow): LogLine =>
  create(LogLineSchema, {
    time: timestampFromDate(row.at),
    attempt: row.number,
    level: row.level as LogLine_Level,
    message: printable(row.message),
  });
