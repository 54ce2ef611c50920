import type { Attempt } from "./attempt.ts";
import { type Failure, readFailure } from "./failure.ts";
import { TaskAbortedError } from "./task-aborted.ts";

/** What the worker reports of an attempt whose handler has ended. */
export type Outcome =
  | { readonly kind: "completed"; readonly outputJson: Uint8Array<ArrayBuffer> }
  | { readonly kind: "failed"; readonly failure: Failure }
  | { readonly kind: "released" }
  /** The server knows more of it already. */
  | { readonly kind: "dropped" };

/**
 * A result counts whatever was aborted: the server decides whether it came in time. But where a durable call was, the
 * handler went on without what it had asked for.
 */
export function outcomeOfResult(attempt: Attempt, outputJson: Uint8Array<ArrayBuffer>): Outcome {
  if (attempt.isCut && attempt.aborted) return outcomeOfThrown(attempt, new TaskAbortedError(attempt.aborted));
  if (attempt.lost || attempt.fault) return outcomeOfThrown(attempt, attempt.fault);
  return { kind: "completed", outputJson };
}

/** What an aborted handler throws says nothing about the task: an outage or a shutdown burns no attempt (G4, G7). */
export function outcomeOfThrown(attempt: Attempt, thrown: unknown): Outcome {
  if (attempt.lost) return outcomeOfLost(attempt);
  if (attempt.fault) return { kind: "failed", failure: readFailure(attempt.fault) };
  switch (attempt.aborted) {
    case "lease_lost":
    case "stopping":
      return { kind: "released" };
    case "timeout":
      return { kind: "failed", failure: { ...readFailure(thrown), type: "TIMED_OUT", retryable: true } };
    default:
      return { kind: "failed", failure: { ...readFailure(thrown), ...attempt.forget(thrown) } };
  }
}

/** An exclusive task waits for the word that its handler has ended. */
function outcomeOfLost(attempt: Attempt): Outcome {
  return { kind: attempt.lease.exclusive ? "released" : "dropped" };
}
