import type { When } from "./definition.ts";
import { isTerminalTask, type TaskState } from "./states.ts";

/** How a dependency stands. */
export interface DependencyState {
  readonly state: TaskState;
  readonly allowFailure: boolean;
}

export type Unblocking = "wait" | "ready" | "skipped";

/** What a BLOCKED task's dependencies add up to. */
export interface Tally {
  /** Not ended yet: the task's pending count. */
  pending: number;
  /** Ended other than SUCCEEDED, `allow_failure` or not. */
  unsuccessful: number;
  /** Ended so that `all_succeeded` cannot be. */
  forbidding: number;
  /** DEAD, `allow_failure` or not: what `any_failed` needs one of. */
  dead: number;
}

/** Decides by the `when` table of the design: under `all_succeeded` at the first end that forbids, else when all ended. */
export function decideWhen(when: When, dependencies: Iterable<DependencyState>): Unblocking {
  const tally = emptyTally();
  for (const { state, allowFailure } of dependencies) {
    if (isTerminalTask(state)) tallyEnd(tally, state, allowFailure);
    else tally.pending++;
  }
  return decideTally(when, tally);
}

export const emptyTally = (): Tally => ({ pending: 0, unsuccessful: 0, forbidding: 0, dead: 0 });

/** Counts the end of a dependency, without its pending. */
export function tallyEnd(tally: Tally, state: TaskState, allowFailure: boolean): void {
  if (state === "SUCCEEDED") return;
  tally.unsuccessful++;
  if (state === "DEAD") tally.dead++;
  if (state !== "DEAD" || !allowFailure) tally.forbidding++;
}

export function decideTally(when: When, tally: Tally): Unblocking {
  if (when === "all_succeeded" && tally.forbidding > 0) return "skipped";
  if (tally.pending > 0) return "wait";
  return when === "any_failed" && tally.dead === 0 ? "skipped" : "ready";
}
