import type { Definition } from "./definition.ts";
import { neighbours } from "./graph.ts";
import type { Plan } from "./plan.ts";
import { findDownstream, isHardDead, type StateOf, type Waiting } from "./settle.ts";
import { isTerminalTask, type TaskState } from "./states.ts";
import { decideTally, emptyTally, type Tally, tallyEnd } from "./unblock.ts";

/** The states that a retry or replay leaves tasks in; ordinals that are in no list keep theirs. */
export interface Reopening {
  readonly ready: readonly number[];
  readonly blocked: readonly Waiting[];
  /** Tasks that were something else before. */
  readonly skipped: readonly number[];
}

/**
 * Derives states and counters anew. `"all"` retries the run: every DEAD, CANCELLED and SKIPPED task is derived from its
 * dependencies again. Ordinals of DEAD tasks replay these and what is below them; where they are the last that failed
 * the run, also what `on_failure: stop` had cancelled elsewhere, since its reason is gone. What succeeded stays.
 */
export function recompute(
  plan: Plan,
  definition: Definition,
  stateOf: StateOf,
  reopen: "all" | readonly number[],
): Reopening {
  const inScope = reopen === "all" ? undefined : findScope(plan, definition, stateOf, reopen);
  const changed = new Map<number, TaskState>();
  const now = (ordinal: number) => changed.get(ordinal) ?? stateOf(ordinal);
  const ready: number[] = [];
  const blocked: Waiting[] = [];
  const skipped: number[] = [];
  for (const ordinal of plan.order) {
    const before = stateOf(ordinal);
    if (!isDerived(before) || (inScope !== undefined && inScope[ordinal] === 0)) continue;
    const tally = tallyDependencies(plan, definition, now, ordinal);
    const decision = decideTally(definition.tasks[ordinal]!.when, tally);
    if (decision === "ready") {
      changed.set(ordinal, "READY");
      ready.push(ordinal);
    } else if (decision === "wait") {
      changed.set(ordinal, "BLOCKED");
      blocked.push({ ordinal, pending: tally.pending, unsuccessful: tally.unsuccessful });
    } else if (before !== "SKIPPED") {
      changed.set(ordinal, "SKIPPED");
      skipped.push(ordinal);
    }
  }
  return { ready, blocked, skipped };
}

function findScope(plan: Plan, definition: Definition, stateOf: StateOf, reopen: readonly number[]): Uint8Array {
  const scope = withDownstream(plan, reopen);
  const cancelled: number[] = [];
  for (let ordinal = 0; ordinal < plan.taskCount; ordinal++) {
    if (scope[ordinal] === 0 && isHardDead(definition, stateOf, ordinal)) return scope;
    if (stateOf(ordinal) === "CANCELLED") cancelled.push(ordinal);
  }
  return withDownstream(plan, [...reopen, ...cancelled]);
}

function withDownstream(plan: Plan, from: readonly number[]): Uint8Array {
  const scope = findDownstream(plan, from);
  for (const ordinal of from) scope[ordinal] = 1;
  return scope;
}

const isDerived = (state: TaskState): boolean =>
  state === "DEAD" || state === "CANCELLED" || state === "SKIPPED" || state === "BLOCKED";

function tallyDependencies(plan: Plan, definition: Definition, now: StateOf, ordinal: number): Tally {
  const tally = emptyTally();
  for (const dependency of neighbours(plan.dependencies, ordinal)) {
    const state = now(dependency);
    if (isTerminalTask(state)) tallyEnd(tally, state, definition.tasks[dependency]!.allowFailure);
    else tally.pending++;
  }
  return tally;
}
