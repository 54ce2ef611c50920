/**
 * Why something was refused. The list is closed, and equal to `runmesh.error.v1.Reason` without its prefix
 * (a test holds them together).
 */
export const REASONS = {
  INVALID_FIELD: { code: "invalid_argument", advice: "Correct the field that the violation names." },
  INVALID_PAYLOAD: {
    code: "invalid_argument",
    advice: "Send valid JSON nested at most 100 deep; send large or exact numbers as text, or the payload as bytes.",
  },
  GRAPH_CYCLE: { code: "invalid_argument", advice: "Remove one dependency of the circle that is named." },
  UNKNOWN_TASK: { code: "invalid_argument", advice: "Name a task of the same definition." },
  DUPLICATE_KEY: { code: "invalid_argument", advice: "Give each task a key of its own." },
  INVALID_REFERENCE: {
    code: "invalid_argument",
    advice: "Refer to the input or to an ancestor, and give a default where the value may be missing.",
  },
  NOT_FOUND: { code: "not_found", advice: "Check the id or name, and the tenant of your credential." },
  IDEMPOTENCY_MISMATCH: {
    code: "already_exists",
    advice: "Use a new key for a new body, or repeat the first body unchanged.",
  },
  FENCE_STALE: { code: "failed_precondition", advice: "Drop the work: a newer lease of the task decides its result." },
  LEASE_EXPIRED: { code: "failed_precondition", advice: "Drop the work: the task is or will be leased again." },
  RUN_NOT_ACTIVE: { code: "failed_precondition", advice: "Drop the work: its run has ended." },
  ILLEGAL_MOVE: { code: "failed_precondition", advice: "Look at the current state: it does not allow this move." },
  SESSION_CLOSED: { code: "failed_precondition", advice: "Attach again for a new session." },
  TOO_LARGE: { code: "invalid_argument", advice: "Send less: a smaller batch, or the payload as an artifact." },
  OVERLOADED: { code: "resource_exhausted", advice: "Repeat after the time given." },
  UNAVAILABLE: { code: "unavailable", advice: "Repeat after the time given; nothing was half done." },
  UNAUTHENTICATED: { code: "unauthenticated", advice: "Send a valid API key as a bearer token." },
  FORBIDDEN: { code: "permission_denied", advice: "Ask an admin for the role, or call from where you are allowed." },
  ALREADY_EXISTS: { code: "already_exists", advice: "Use the one that exists, or another name." },
  SLOW_CONSUMER: { code: "resource_exhausted", advice: "Watch again after the last sequence, and read faster." },
  NOT_SERVED: {
    code: "unimplemented",
    advice: "Call by POST /<package>.<Service>/<Method>; docs/roles.md lists what this version serves.",
  },
  INTERNAL: { code: "internal", advice: "Report it with the request id; repeating is safe with the same request id." },
  CANCELLED: { code: "canceled", advice: "The caller gave up; repeat if the result still matters." },
} as const satisfies Record<string, ReasonEntry>;

interface ReasonEntry {
  /** Name of the Connect code, as Connect writes it. */
  readonly code: string;
  /** What the caller should do, in one sentence. */
  readonly advice: string;
}

export type Reason = keyof typeof REASONS;

export interface Violation {
  /** Path in the request, as in `definition.tasks[3].depends_on[0]`. */
  readonly field: string;
  readonly reason: Reason;
  readonly description: string;
}

export interface MeshErrorOptions {
  readonly violations?: readonly Violation[];
  readonly retryAfterMs?: number;
  readonly lastSequence?: bigint;
  readonly cause?: unknown;
}

/** The one error that callers are meant to see. A bug throws a plain `Error` and reaches them as INTERNAL. */
export class MeshError extends Error {
  override readonly name = "MeshError";
  readonly reason: Reason;
  readonly violations: readonly Violation[];
  readonly retryAfterMs: number | undefined;
  readonly lastSequence: bigint | undefined;

  constructor(reason: Reason, message: string, options: MeshErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.violations = options.violations ?? [];
    this.retryAfterMs = options.retryAfterMs;
    this.lastSequence = options.lastSequence;
  }

  get advice(): string {
    return REASONS[this.reason].advice;
  }
}

/** An error about one field. */
export function invalidField(field: string, description: string, reason: Reason = "INVALID_FIELD"): MeshError {
  return new MeshError(reason, `${field}: ${description}`, { violations: [{ field, reason, description }] });
}
