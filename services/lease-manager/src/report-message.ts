import { durationMs, timestampDate } from "@bufbuild/protobuf/wkt";
import type { CompletedTask, FailedTask, HeldLease } from "@runmesh/contracts/lease/v1/lease_pb";
import { type LogLine, LogLine_Level } from "@runmesh/contracts/task/v1/task_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { exceedsUtf8 } from "@runmesh/domain/names";
import { printable } from "@runmesh/domain/printable";
import { MAX_INT4 } from "@runmesh/platform/int4";
import { readPayload } from "@runmesh/platform/payload";
import { isValidTimestamp } from "@runmesh/platform/timestamp";
import type { NewLogLine } from "@runmesh/store/attempt-logs";
import { MAX_STEPS } from "@runmesh/store/steps";
import type { NamedLease } from "./renewals.ts";
import type { CompletedItem, FailedItem } from "./reports.ts";

const MAX_PROGRESS_BYTES = 64 * 1024;
const MAX_DETAILS_BYTES = 64 * 1024;
const MAX_LINE_BYTES = 8 * 1024;
const MAX_TYPE_BYTES = 128;
const MAX_FORGOTTEN = 1_000;
const LEVELS: ReadonlySet<unknown> = new Set(Object.values(LogLine_Level));

/** Reads a completion; a faulty one is answered by itself and holds up no other. */
export function readCompleted(task: CompletedTask, field: string): CompletedItem | MeshError {
  return attempt(() => {
    const output = readPayload(task.outputPayload, `${field}.output`);
    return {
      taskId: task.taskId,
      fence: task.fence,
      output: output === undefined ? undefined : Buffer.from(output),
      log: readLog(task.taskId, task.fence, task.log),
    };
  });
}

export function readFailed(task: FailedTask, field: string): FailedItem | MeshError {
  return attempt(() => ({
    taskId: task.taskId,
    fence: task.fence,
    error: {
      type: readErrorType(task.error?.type ?? ""),
      message: cut(task.error?.message ?? "", MAX_LINE_BYTES),
      retryable: task.error?.retryable ?? true,
      details: readSmallJson(task.error?.detailsJson, `${field}.error.details_json`, MAX_DETAILS_BYTES) ?? null,
    },
    retryAfterMs: task.retryAfter === undefined ? 0 : Math.max(0, durationMs(task.retryAfter)),
    log: readLog(task.taskId, task.fence, task.log),
    forget: {
      positions: task.forgetSteps.filter((step) => step <= MAX_INT4).slice(0, MAX_FORGOTTEN),
      from: Math.min(task.forgetFrom, MAX_STEPS),
    },
  }));
}

export function readHeld(lease: HeldLease, field: string): NamedLease {
  return {
    taskId: lease.taskId,
    fence: lease.fence,
    started: lease.started,
    progress: readSmallJson(lease.progressJson, `${field}.progress_json`, MAX_PROGRESS_BYTES),
    log: readLog(lease.taskId, lease.fence, lease.log),
  };
}

export function readSmallJson(bytes: Uint8Array | undefined, field: string, most: number): Buffer | undefined {
  if (bytes === undefined || bytes.length === 0) return undefined;
  if (bytes.length > most) throw invalidField(field, `has at most ${most} bytes`, "TOO_LARGE");
  const text = readPayload({ case: "json", value: bytes }, field);
  return text === undefined ? undefined : Buffer.from(text);
}

/** An error's type is a name that people filter by: what cannot be printed is escaped, what is long is cut. */
function readErrorType(type: string): string {
  const shown = printable(type === "" ? "Error" : type);
  return exceedsUtf8(shown, MAX_TYPE_BYTES)
    ? Buffer.from(shown)
        .subarray(0, MAX_TYPE_BYTES)
        .toString("utf8")
        .replace(/\ufffd+$/, "")
    : shown;
}

const cut = (text: string, most: number): Buffer => {
  const bytes = Buffer.from(text);
  return bytes.length <= most ? bytes : bytes.subarray(0, most);
};

export const readLog = (taskId: bigint, fence: bigint, lines: readonly LogLine[]): NewLogLine[] =>
  lines.map((line) => ({
    taskId,
    fence,
    // A line is kept whatever its worker's clock or a later version says.
    at: line.time !== undefined && isValidTimestamp(line.time) ? timestampDate(line.time) : new Date(),
    level: LEVELS.has(line.level) ? line.level : LogLine_Level.UNSPECIFIED,
    message: cut(line.message, MAX_LINE_BYTES),
  }));

function attempt<T>(read: () => T): T | MeshError {
  try {
    return read();
  } catch (error) {
    if (error instanceof MeshError) return error;
    throw error;
  }
}
