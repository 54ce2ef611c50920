import { MeshError } from "@runmesh/client";
import { readDuration } from "./duration.ts";

/** What a failed attempt reports. */
export interface Failure {
  /** As `retry.nonRetryable` names it. At most 128 bytes. */
  readonly type: string;
  /** At most 8 KiB. */
  readonly message: string;
  readonly retryable: boolean;
  readonly retryAfterMs?: number;
  /** Positions of recorded failures that are behind it. */
  readonly forget?: readonly number[];
}

const MAX_TYPE = 128;
const MAX_MESSAGE = 8 * 1024;

/** Throw it from a handler: the task is DEAD without another attempt. `cause` is what people see. */
export function nonRetryable(cause: unknown): Error {
  return new Verdict(cause, false, undefined);
}

/** Throw it from a handler: the next attempt waits at least this long, as in "30s". `cause` is what people see. */
export function retryAfter(duration: string, cause: unknown): Error {
  return new Verdict(cause, true, readDuration(duration));
}

/** Whether a handler said so of what it threw. */
export const isNonRetryable = (thrown: unknown): boolean => thrown instanceof Verdict && !thrown.retryable;

class Verdict extends Error {
  override readonly name = "TaskVerdict";
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(cause: unknown, retryable: boolean, retryAfterMs: number | undefined) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Reads whatever a handler threw. A check that failed is not tried again: the next attempt would fail it too. */
export function readFailure(thrown: unknown): Failure {
  const verdict = thrown instanceof Verdict ? thrown : undefined;
  const cause = verdict ? verdict.cause : thrown;
  const failedCheck = cause instanceof CheckFailedError;
  return {
    type: clip(typeOf(cause), MAX_TYPE),
    message: clip(messageOf(cause), MAX_MESSAGE),
    retryable: verdict?.retryable ?? !failedCheck,
    ...(verdict?.retryAfterMs !== undefined && { retryAfterMs: verdict.retryAfterMs }),
  };
}

/** Input or output that its schema refuses, that is not JSON, or that is too large. */
export class CheckFailedError extends Error {
  override readonly name: string;

  constructor(reason: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = reason;
  }

  /** A schema's refusal; anything else it threw stays as it is. */
  static from(thrown: unknown): unknown {
    return thrown instanceof MeshError ? new CheckFailedError(thrown.reason, thrown.message, thrown) : thrown;
  }
}

function typeOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return "NonError";
  return thrown.name !== "Error" && thrown.name ? thrown.name : thrown.constructor.name || "Error";
}

function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  try {
    return typeof thrown === "object" ? JSON.stringify(thrown) : String(thrown);
  } catch {
    return "a value that cannot be shown";
  }
}

/** Cuts text to bytes of UTF-8, at a character. */
export function clip(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}
