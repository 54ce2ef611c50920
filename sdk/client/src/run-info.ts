import { Run_StateSchema, type Run as RunMessage } from "@runmesh/contracts/run/v1/run_pb";
import { enumName } from "./enum-name.ts";
import { readTime } from "./run-event.ts";

export type RunState = "PENDING" | "RUNNING" | "PAUSED" | "SUCCEEDED" | "FAILED" | "CANCELLED" | "TIMED_OUT";

/** A run as it stands. */
export interface RunInfo {
  readonly id: string;
  readonly workflow: string;
  /** 0 for an inline definition. */
  readonly version: number;
  readonly state: RunState;
  readonly input: unknown;
  /** Set when SUCCEEDED. */
  readonly output?: unknown;
  readonly labels: Readonly<Record<string, string>>;
  readonly tasks: TaskCounts;
  readonly createTime?: Date;
  readonly startTime?: Date;
  readonly endTime?: Date;
  /** The first DEAD task that failed the run. */
  readonly failure?: { readonly taskKey: string; readonly errorType: string; readonly message: string };
  /** Set when CANCELLED: who did it, and why they said they did. */
  readonly cancellation?: { readonly principal: string; readonly comment: string };
}

export interface TaskCounts {
  readonly total: number;
  readonly open: number;
  readonly succeeded: number;
  readonly dead: number;
  readonly skipped: number;
  readonly cancelled: number;
}

const NO_TASKS: TaskCounts = { total: 0, open: 0, succeeded: 0, dead: 0, skipped: 0, cancelled: 0 };
const decoder = new TextDecoder();

export function readRun(run: RunMessage): RunInfo {
  const state = readState(run.state);
  const createTime = readTime(run.createTime);
  const startTime = readTime(run.startTime);
  const endTime = readTime(run.endTime);
  return {
    id: String(run.id),
    workflow: run.workflow,
    version: run.workflowVersion,
    state,
    input: readJson(run.inputJson),
    ...(state === "SUCCEEDED" && { output: readJson(run.outputJson) }),
    labels: run.labels,
    tasks: run.tasks ? countsOf(run.tasks) : NO_TASKS,
    ...(createTime && { createTime }),
    ...(startTime && { startTime }),
    ...(endTime && { endTime }),
    ...(run.failure && {
      failure: {
        taskKey: run.failure.taskKey,
        errorType: run.failure.errorType,
        message: run.failure.message,
      },
    }),
    ...(run.cancellation && {
      cancellation: { principal: run.cancellation.principal, comment: run.cancellation.comment },
    }),
  };
}

export function readState(state: number): RunState {
  return enumName(Run_StateSchema, state) as RunState;
}

export function hasEnded(state: RunState): boolean {
  return state === "SUCCEEDED" || state === "FAILED" || state === "CANCELLED" || state === "TIMED_OUT";
}

/** JSON text; absent means null. */
export function readJson(bytes: Uint8Array): unknown {
  return bytes.length === 0 ? null : JSON.parse(decoder.decode(bytes));
}

function countsOf(tasks: NonNullable<RunMessage["tasks"]>): TaskCounts {
  const { total, open, succeeded, dead, skipped, cancelled } = tasks;
  return { total, open, succeeded, dead, skipped, cancelled };
}
