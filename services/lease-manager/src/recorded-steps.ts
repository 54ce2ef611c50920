import { durationMs } from "@bufbuild/protobuf/wkt";
import type { StepError, StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import type {
  ListStepsRequest,
  RecordStepsRequest,
  SuspendTaskRequest,
  Wait,
} from "@runmesh/contracts/lease/v1/lease_service_pb";
import { MAX_DURATION_MS } from "@runmesh/domain/duration";
import { invalidField, type MeshError } from "@runmesh/domain/errors";
import { exceedsUtf8, findNameFault, findTextFault, MAX_NAME_BYTES } from "@runmesh/domain/names";
import { printable } from "@runmesh/domain/printable";
import { readPayload } from "@runmesh/platform/payload";
import type { RecordedError } from "@runmesh/store/child-end";
import { MAX_POSITION, MAX_STEPS, STEP_KINDS, STEP_OUTCOMES, type StepCall, type StepRow } from "@runmesh/store/steps";
import type { SuspendTask, WaitCall } from "@runmesh/store/suspend-task";
import { readLog, readSmallJson } from "./report-message.ts";

const MAX_RECORDED = 100;
const MAX_WAITS = 1_000;
const MAX_TYPE_BYTES = 128;
const MAX_MESSAGE_BYTES = 8 * 1024;
const MAX_PROGRESS_BYTES = 64 * 1024;

/** What a worker may record by itself: the mesh answers the others. */
const RECORDABLE: readonly number[] = [STEP_KINDS.STEP, STEP_KINDS.SLEEP];
const WAITABLE: readonly number[] = [STEP_KINDS.SLEEP, STEP_KINDS.SIGNAL, STEP_KINDS.RESULT];

export interface NewStep extends StepCall {
  readonly outcome: number;
  readonly value: Buffer | null;
  readonly childRunId: null;
}

export function readNewSteps(request: RecordStepsRequest): NewStep[] {
  const { steps } = request;
  if (steps.length === 0 || steps.length > MAX_RECORDED) {
    throw invalidField("steps", `a call has 1 to ${MAX_RECORDED}`, steps.length === 0 ? "INVALID_FIELD" : "TOO_LARGE");
  }
  const positions = new Set(steps.map((step) => step.position));
  if (positions.size < steps.length) throw invalidField("steps", "a position is named twice");
  return steps.map((step, i) => {
    const field = `steps[${i}]`;
    const call = readCall(step, RECORDABLE, field);
    if (step.error !== undefined) {
      return { ...call, outcome: STEP_OUTCOMES.FAILED, value: writeError(step.error), childRunId: null };
    }
    const value = readValue(step.valueJson, `${field}.value_json`);
    return { ...call, outcome: STEP_OUTCOMES.ANSWERED, value, childRunId: null };
  });
}

export function readWaits(request: SuspendTaskRequest): Pick<SuspendTask, "waits" | "log" | "progress" | "stay"> {
  const { waits, taskId, fence } = request;
  if (waits.length === 0 || waits.length > MAX_WAITS) throw invalidField("waits", `a call has 1 to ${MAX_WAITS}`);
  const positions = new Set(waits.map((wait) => wait.position));
  if (positions.size < waits.length) throw invalidField("waits", "a position is named twice");
  return {
    waits: waits.map((wait, i) => readWait(wait, `waits[${i}]`)).sort((a, b) => a.position - b.position),
    log: readLog(taskId, fence, request.log),
    progress: readSmallJson(request.progressJson, "progress_json", MAX_PROGRESS_BYTES),
    stay: request.stay,
  };
}

export function readFrom(request: ListStepsRequest): number {
  return Math.min(request.fromPosition, MAX_POSITION);
}

function readWait(wait: Wait, field: string): WaitCall {
  const call = readCall(wait, WAITABLE, field);
  if (call.kind === STEP_KINDS.SIGNAL) {
    const fault = findNameFault(call.name);
    if (fault !== undefined) throw invalidField(`${field}.name`, fault);
  }
  const durationInMs = wait.duration === undefined ? null : Math.ceil(durationMs(wait.duration));
  if (durationInMs === null && call.kind === STEP_KINDS.SLEEP) throw invalidField(`${field}.duration`, "must be given");
  if (durationInMs !== null && (durationInMs < 0 || durationInMs > MAX_DURATION_MS)) {
    throw invalidField(`${field}.duration`, "must be 0 to 366 days");
  }
  const childPosition = call.kind === STEP_KINDS.RESULT ? wait.childPosition : undefined;
  return { ...call, durationMs: durationInMs, childPosition };
}

function readCall(
  call: { position: number; kind: StepKind; name: string; occurrence: number },
  kinds: readonly number[],
  field: string,
): StepCall {
  const { position, kind, name, occurrence } = call;
  if (position >= MAX_STEPS) {
    throw invalidField(`${field}.position`, `a task records at most ${MAX_STEPS} calls`, "TOO_LARGE");
  }
  if (!kinds.includes(kind)) throw invalidField(`${field}.kind`, "is none that this call takes");
  const fault =
    findTextFault(name) ??
    (name === "" || exceedsUtf8(name, MAX_NAME_BYTES) ? `must be 1 to ${MAX_NAME_BYTES} bytes` : undefined);
  if (fault !== undefined) throw invalidField(`${field}.name`, fault);
  if (occurrence >= MAX_STEPS) throw invalidField(`${field}.occurrence`, `must be below ${MAX_STEPS}`);
  return { position, kind, name, occurrence };
}

function readValue(json: Uint8Array, field: string): Buffer | null {
  if (json.length === 0) return null;
  const text = readPayload({ case: "json", value: json }, field);
  return text === undefined ? null : Buffer.from(text);
}

function writeError(error: StepError): Buffer {
  const type = printable(error.type || "Error", MAX_TYPE_BYTES);
  const message = printable(error.message, MAX_MESSAGE_BYTES);
  const { retryable } = error;
  return Buffer.from(JSON.stringify({ type, message, ...(retryable && { retryable }) } satisfies RecordedError));
}

/** A step as the contract has it. */
export function writeStep(row: StepRow) {
  const { position, kind, name, occurrence, done, outcome, value, renew } = row;
  const call = { position, kind: kind as StepKind, name, occurrence, renew, childRunId: row.child_run_id ?? 0n };
  if (done === null) return call;
  if (outcome === STEP_OUTCOMES.FAILED) return { ...call, done, error: readError(value) };
  return { ...call, done, timedOut: outcome === STEP_OUTCOMES.TIMED_OUT, ...(value !== null && { valueJson: value }) };
}

function readError(value: Buffer | null) {
  // The mesh wrote it itself.
  const recorded = JSON.parse(value!.toString("utf8")) as RecordedError;
  const { type, message, state = "", taskKey = "", retryable = false } = recorded;
  return { type, message, state, taskKey, retryable };
}

export const mismatch = (position: number): MeshError =>
  invalidField(`waits[position=${position}]`, "is recorded as another call, or waits for a child that was not started");
