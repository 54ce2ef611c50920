import { MeshError } from "@runmesh/client";
import { readDuration } from "./duration.ts";
import type { Forgotten } from "./given-failures.ts";

/** What a failed attempt reports. */
export interface Failure {
  /** As `retry.nonRetryable` names it. At most 128 bytes. */
  readonly type: string;
  /** At most 8 KiB. */
  readonly message: string;
  readonly retryable: boolean;
  readonly retryAfterMs?: number;
  /** Recorded failures that are behind it, and what followed from them. */
  readonly forget?: Forgotten;
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

/**
 * A step's failure as it is recorded: its `name` is the type of what the step threw. Each pass is given the same, so
 * nothing else of that is there, but for its stack where it was thrown in this pass.
 */
export class StepFailedError extends Error {
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(
    recorded: { readonly type: string; readonly message: string; readonly retryable: boolean },
    thrown: unknown,
  ) {
    super(recorded.message);
    this.name = recorded.type;
    this.retryable = recorded.retryable;
    this.retryAfterMs = thrown instanceof Verdict ? thrown.retryAfterMs : undefined;
    const cause = thrown instanceof Verdict ? thrown.cause : thrown;
    if (cause instanceof Error && cause.stack !== undefined) this.stack = cause.stack;
  }
}

/** Reads whatever a handler threw. A check that failed is not tried again: the next attempt would fail it too. */
export function readFailure(thrown: unknown): Failure {
  const verdict = thrown instanceof Verdict || thrown instanceof StepFailedError ? thrown : undefined;
  const cause = thrown instanceof Verdict ? thrown.cause : thrown;
  const isFinal = cause instanceof CheckFailedError || (cause instanceof StepFailedError && !cause.retryable);
  return {
    type: clip(typeOf(cause), MAX_TYPE),
    message: clip(messageOf(cause), MAX_MESSAGE),
    retryable: verdict?.retryable ?? !isFinal,
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
  if (thrown instanceof StepFailedError) return thrown.name;
  if (thrown instanceof MeshError) return thrown.reason;
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
