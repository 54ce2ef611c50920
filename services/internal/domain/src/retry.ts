import type { RetryPolicy } from "./definition.ts";
import { MAX_DURATION_MS } from "./duration.ts";

/** Error types that the mesh itself gives an attempt. */
export const MESH_ERROR_TYPES = {
  WORKER_LOST: "WORKER_LOST",
  SCHEDULE_TO_START: "SCHEDULE_TO_START_TIMEOUT",
  START_TO_CLOSE: "START_TO_CLOSE_TIMEOUT",
  HEARTBEAT: "HEARTBEAT_TIMEOUT",
  UNRESOLVED_REFERENCE: "UNRESOLVED_REFERENCE",
} as const;

/**
 * Delay after the nth failure: min(max, initial × multiplier^(n−1)), then spread by ± jitter. `random` gives [0, 1).
 * Whole milliseconds from 0 to max × (1 + jitter); without jitter it never shrinks as n grows, and never overflows.
 */
export function retryDelayMs(policy: RetryPolicy, failureCount: number, random: () => number): number {
  const { initialMs, multiplier, maxMs, jitter } = policy;
  // A power that overflows is Infinity, which the minimum turns into the limit; only 0 × Infinity must be kept out.
  const growth = initialMs === 0 ? 0 : initialMs * multiplier ** (Math.max(1, failureCount) - 1);
  const delay = Math.min(maxMs, growth);
  return Math.floor(delay * (1 + jitter * (2 * random() - 1)));
}

export interface FailedAttempt {
  readonly policy: RetryPolicy;
  /** Attempts FAILED or TIMED_OUT since the last retry or replay, this one included. */
  readonly failures: number;
  /** Leases lost after their start since then, this one included. */
  readonly losses: number;
  /** Of these, how many without another outcome between, this one included; taken as `losses` where absent. */
  readonly lossesInARow?: number;
  readonly outcome: "FAILED" | "TIMED_OUT" | "LOST";
  readonly errorType: string;
  /** What the worker said; false means never again. */
  readonly retryable: boolean;
  /** Not before this much time; 0 where nothing was asked. */
  readonly retryAfterMs: number;
  readonly random: () => number;
}

export type FailureDecision =
  | { readonly kind: "retry"; readonly delayMs: number }
  | { readonly kind: "dead"; readonly errorType: string };

/** What follows an attempt that failed, timed out or was lost after its start. */
export function decideFailure(attempt: FailedAttempt): FailureDecision {
  return attempt.outcome === "LOST" ? decideLoss(attempt) : decideError(attempt);
}

function decideLoss({ policy, losses, lossesInARow = losses, random }: FailedAttempt): FailureDecision {
  if (losses > policy.maxLost) return { kind: "dead", errorType: MESH_ERROR_TYPES.WORKER_LOST };
  // G7: recovery is at once, but a task that loses its worker again and again waits.
  return { kind: "retry", delayMs: lossesInARow <= 1 ? 0 : retryDelayMs(policy, lossesInARow - 1, random) };
}

function decideError(attempt: FailedAttempt): FailureDecision {
  const { policy, failures, outcome, errorType, retryable, retryAfterMs, random } = attempt;
  const neverStarted = outcome === "TIMED_OUT" && errorType === MESH_ERROR_TYPES.SCHEDULE_TO_START;
  const isExhausted = policy.maxAttempts !== 0 && failures >= policy.maxAttempts;
  if (neverStarted || !retryable || isExhausted || policy.nonRetryable.includes(errorType)) {
    return { kind: "dead", errorType };
  }
  const asked = Math.min(Math.max(0, retryAfterMs), MAX_DURATION_MS);
  return { kind: "retry", delayMs: Math.max(asked, retryDelayMs(policy, failures, random)) };
}
