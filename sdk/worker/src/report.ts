import { create } from "@bufbuild/protobuf";
import type { CompletedTask, FailedTask, ReleasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { FailedTaskSchema, ReleasedTaskSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { type LogLine, LogLineSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Attempt } from "./attempt.ts";
import type { Outcome } from "./outcome.ts";
import { writeLine } from "./renewal-protocol.ts";

export interface Report {
  readonly attempt: Attempt;
  readonly message: ReportMessage;
}

type ReportMessage = CompletedTask | FailedTask | ReleasedTask;

/** Limits of one call; the bytes leave room below 4 MiB. */
const MAX_ITEMS = 1_000;
const MAX_BYTES = 3.5 * 1024 * 1024;
const NO_LINES: LogLine[] = [];

export function writeReport(attempt: Attempt, outcome: Exclude<Outcome, { kind: "dropped" }>): Report {
  return { attempt, message: writeMessage(attempt, outcome) };
}

function writeMessage(attempt: Attempt, outcome: Exclude<Outcome, { kind: "dropped" }>): ReportMessage {
  const { taskId, fence } = attempt.lease;
  switch (outcome.kind) {
    case "completed":
      // Made by hand, as `create` would: it is the one message that every task costs.
      return {
        $typeName: "runmesh.lease.v1.CompletedTask",
        taskId,
        fence,
        outputPayload: { case: "outputJson", value: outcome.outputJson },
        log: linesOf(attempt),
      };
    case "failed": {
      const { type, message, retryable, retryAfterMs, forget } = outcome.failure;
      return create(FailedTaskSchema, {
        taskId,
        fence,
        error: { type, message, retryable },
        log: linesOf(attempt),
        ...(attempt.progressJson && { progressJson: attempt.progressJson }),
        ...(retryAfterMs !== undefined && { retryAfter: writeDuration(retryAfterMs) }),
        ...(forget && { forgetSteps: [...forget.steps], forgetFrom: forget.from }),
      });
    }
    case "released":
      return create(ReleasedTaskSchema, { taskId, fence });
  }
}

/** The first reports, as many as one call may carry. */
export function takeReports(pending: readonly Report[]): Report[] {
  let bytes = 0;
  let count = 0;
  while (count < pending.length && count < MAX_ITEMS) {
    bytes += sizeOf(pending[count]!);
    if (count > 0 && bytes > MAX_BYTES) break;
    count++;
  }
  return pending.slice(0, count);
}

export function linesOf(attempt: Attempt): LogLine[] {
  if (attempt.lines.length === 0) return NO_LINES;
  return attempt.lines.map((line) => create(LogLineSchema, writeLine(line)));
}

/** About what it takes on the wire. */
function sizeOf({ message: report }: Report): number {
  if (report.$typeName === "runmesh.lease.v1.ReleasedTask") return 32;
  let bytes = 64;
  for (const line of report.log) bytes += line.message.length * 3 + 32;
  if (report.$typeName === "runmesh.lease.v1.FailedTask") {
    return bytes + (report.error?.message.length ?? 0) * 3 + report.progressJson.length;
  }
  const { value } = report.outputPayload;
  return bytes + (value instanceof Uint8Array ? value.length : 0);
}

function writeDuration(ms: number) {
  const seconds = Math.floor(ms / 1_000);
  return { seconds: BigInt(seconds), nanos: Math.round((ms - seconds * 1_000) * 1e6) };
}
