import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorDetail, ErrorDetailSchema, ReasonSchema } from "@runmesh/contracts/error/v1/error_pb";
import { enumName } from "./enum-name.ts";

/** Why something was refused: `runmesh.error.v1.Reason` without its prefix. A newer server may know more. */
export type Reason =
  | "INVALID_FIELD"
  | "INVALID_PAYLOAD"
  | "GRAPH_CYCLE"
  | "UNKNOWN_TASK"
  | "DUPLICATE_KEY"
  | "INVALID_REFERENCE"
  | "NOT_FOUND"
  | "IDEMPOTENCY_MISMATCH"
  | "FENCE_STALE"
  | "LEASE_EXPIRED"
  | "RUN_NOT_ACTIVE"
  | "ILLEGAL_MOVE"
  | "SESSION_CLOSED"
  | "TOO_LARGE"
  | "OVERLOADED"
  | "UNAVAILABLE"
  | "UNAUTHENTICATED"
  | "FORBIDDEN"
  | "ALREADY_EXISTS"
  | "SLOW_CONSUMER"
  | "NOT_SERVED"
  | "INTERNAL"
  | "CANCELLED"
  | (string & {});

/** One wrong field. */
export interface Violation {
  /** Path of the field, as in `definition.tasks[3].depends_on[0]` or `input.cents`. */
  readonly field: string;
  readonly reason: Reason;
  readonly description: string;
}

export interface MeshErrorOptions {
  readonly advice?: string;
  readonly violations?: readonly Violation[];
  readonly requestId?: string;
  readonly retryAfterMs?: number;
  readonly lastSequence?: bigint;
  readonly cause?: unknown;
}

/** What every refused call rejects with. Switch on `reason`; the message is for people. */
export class MeshError extends Error {
  override readonly name = "MeshError";
  readonly reason: Reason;
  /** What to do about it, in one sentence. */
  readonly advice: string;
  /** Every wrong field, at most 20. */
  readonly violations: readonly Violation[];
  /** Finds the call in the server's logs. Empty when the server was not reached. */
  readonly requestId: string;
  /** How long to wait before the next try, where the server said so. */
  readonly retryAfterMs: number | undefined;
  /** With SLOW_CONSUMER: the sequence to resume after. */
  readonly lastSequence: bigint | undefined;

  constructor(reason: Reason, message: string, options: MeshErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.advice = options.advice ?? "";
    this.violations = options.violations ?? [];
    this.requestId = options.requestId ?? "";
    this.retryAfterMs = options.retryAfterMs;
    this.lastSequence = options.lastSequence;
  }

  /** Path of the first wrong field. */
  get field(): string | undefined {
    return this.violations[0]?.field;
  }
}

export interface RunFailure {
  readonly runId: string;
  readonly state: "FAILED" | "CANCELLED" | "TIMED_OUT";
  /** The first task that failed the run. */
  readonly taskKey?: string;
  readonly errorType?: string;
  readonly message?: string;
}

/** What `run.result()` rejects with when the run ended without success. */
export class RunFailedError extends Error {
  override readonly name = "RunFailedError";
  readonly runId: string;
  readonly state: RunFailure["state"];
  readonly taskKey: string | undefined;
  readonly errorType: string | undefined;

  constructor(failure: RunFailure) {
    super(describe(failure));
    this.runId = failure.runId;
    this.state = failure.state;
    this.taskKey = failure.taskKey;
    this.errorType = failure.errorType;
  }
}

/** What a child's `result()` rejects with when the child had not ended in the time it was given. The child goes on. */
export class ResultTimeoutError extends Error {
  override readonly name = "ResultTimeoutError";
  readonly runId: string;

  constructor(runId: string, timeout: string) {
    super(`run ${runId} had not ended after ${timeout}`);
    this.runId = runId;
  }
}

function describe({ runId, state, taskKey, errorType, message }: RunFailure): string {
  const ended = { FAILED: "failed", CANCELLED: "was cancelled", TIMED_OUT: "timed out" }[state];
  const task = taskKey === undefined ? "" : `task ${taskKey}`;
  return [`run ${runId} ${ended}`, task, errorType, message].filter(Boolean).join(": ");
}

/** Reads an `ErrorDetail`, of a call or of one item of a batch. */
export function readErrorDetail(detail: ErrorDetail, message?: string, cause?: unknown): MeshError {
  const reason = readReason(detail.reason);
  const violations = detail.violations.map((v) => ({
    field: v.field,
    reason: readReason(v.reason),
    description: v.description,
  }));
  const described = violations[0] && `${violations[0].field}: ${violations[0].description}`;
  const wait = detail.retryAfter;
  return new MeshError(reason, message || described || detail.advice || reason, {
    advice: detail.advice,
    violations,
    requestId: detail.requestId,
    ...(wait && { retryAfterMs: Number(wait.seconds) * 1_000 + Math.ceil(wait.nanos / 1e6) }),
    ...(detail.lastSequence !== 0n && { lastSequence: detail.lastSequence }),
    cause,
  });
}

/** Reads whatever a call rejected with. */
export function readCallError(thrown: unknown): MeshError {
  if (thrown instanceof MeshError) return thrown;
  const error = ConnectError.from(thrown);
  const detail = error.findDetails(ErrorDetailSchema)[0];
  if (detail !== undefined) {
    // The MeshError has all of it by name: a program that prints the error is spared the bytes in its cause.
    for (const field of ["details", "metadata"]) Object.defineProperty(error, field, { enumerable: false });
    return readErrorDetail(detail, error.rawMessage, thrown);
  }
  const [reason, advice] = BY_CODE[isBroken(error) ? Code.Aborted : error.code] ?? BY_CODE[Code.Internal]!;
  return new MeshError(reason, error.rawMessage || reason, {
    advice,
    requestId: error.metadata.get("x-request-id") ?? "",
    cause: thrown,
  });
}

/** The connection failed (Node gave an error with a code), or what came over it was cut off. */
function isBroken(error: ConnectError): boolean {
  if (error.code === Code.Canceled || error.code === Code.DeadlineExceeded) return false;
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) {
    if ("code" in cause && typeof cause.code === "string") return true;
  }
  return error.code === Code.InvalidArgument && !error.isWireError;
}

function readReason(value: number): Reason {
  return enumName(ReasonSchema, value) ?? "INTERNAL";
}

/** For answers without a detail: those of proxies and of the connection itself. A connection that broke is Aborted. */
const BY_CODE: { readonly [code in Code]?: readonly [Reason, string] } = {
  [Code.InvalidArgument]: ["INVALID_FIELD", "Correct the request."],
  [Code.NotFound]: ["NOT_FOUND", "Check the URL and the id."],
  [Code.Unimplemented]: ["NOT_SERVED", "Check the URL: what answered does not serve this method."],
  [Code.Unauthenticated]: ["UNAUTHENTICATED", "Send a valid API key."],
  [Code.PermissionDenied]: ["FORBIDDEN", "Ask an admin for the role."],
  [Code.ResourceExhausted]: ["OVERLOADED", "Repeat later, or send less at once."],
  [Code.Unavailable]: ["UNAVAILABLE", "Check that the mesh is up and the URL is right; repeat later."],
  [Code.Aborted]: [
    "UNAVAILABLE",
    "Nobody answered, or the connection broke: check the URL and that the mesh is up, and repeat.",
  ],
  [Code.Canceled]: ["CANCELLED", "The caller gave up; repeat if the result still matters."],
  [Code.DeadlineExceeded]: ["CANCELLED", "No answer came in time; repeat, or allow more time."],
  [Code.Internal]: ["INTERNAL", "Check the URL: what answered does not speak as a mesh does."],
};
