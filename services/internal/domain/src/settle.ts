import type { Definition } from "./definition.ts";
import { neighbours } from "./graph.ts";
import type { Plan } from "./plan.ts";
import { isTerminalTask, type TaskState } from "./states.ts";
import { decideTally, emptyTally, type Tally, tallyEnd } from "./unblock.ts";

/** The state of a task by its ordinal. */
export type StateOf = (ordinal: number) => TaskState;

/** New counters of a task that stays BLOCKED. */
export interface Waiting {
  readonly ordinal: number;
  readonly pending: number;
  /** Dependencies that ended other than SUCCEEDED. */
  readonly unsuccessful: number;
}

/** What follows the end of a task; no ordinal is in two of the lists, and each is in the order it was decided. */
export interface Settlement {
  readonly ready: readonly number[];
  readonly skipped: readonly number[];
  /** BLOCKED, READY, RETRY_WAIT and SUSPENDED tasks that a failure stops. */
  readonly cancelled: readonly number[];
  /** LEASED tasks that a failure stops: their handlers are told to abort, and what they report ends them. */
  readonly aborted: readonly number[];
  readonly waiting: readonly Waiting[];
}

/**
 * Decides what follows, however far down, once `ended` are in the terminal states that `stateOf` answers. For ends that
 * are not a plain success on the plan's fast path. Linear in the edges of the tasks it touches; the first DEAD task
 * under `on_failure: stop` touches all.
 */
export function settleFailure(
  plan: Plan,
  definition: Definition,
  stateOf: StateOf,
  ended: number | readonly number[],
): Settlement {
  const seeds = typeof ended === "number" ? [ended] : ended;
  const settling = new Settling(plan, definition, stateOf, seeds);
  const isHard = (ordinal: number) => isHardDead(definition, stateOf, ordinal);
  if (definition.onFailure === "stop" && seeds.some(isHard)) settling.stop();
  return settling.run();
}

/** How a run ends: undefined while a task has not ended; FAILED by a DEAD task without `allow_failure`. */
export function runOutcome(definition: Definition, stateOf: StateOf): "SUCCEEDED" | "FAILED" | undefined {
  let outcome: "SUCCEEDED" | "FAILED" = "SUCCEEDED";
  for (let ordinal = 0; ordinal < definition.tasks.length; ordinal++) {
    if (!isTerminalTask(stateOf(ordinal))) return undefined;
    if (isHardDead(definition, stateOf, ordinal)) outcome = "FAILED";
  }
  return outcome;
}

/** A DEAD task that fails its run. */
export function isHardDead(definition: Definition, stateOf: StateOf, ordinal: number): boolean {
  return stateOf(ordinal) === "DEAD" && !definition.tasks[ordinal]!.allowFailure;
}

/** Every task below the given ones, these left out unless one is below another. */
export function findDownstream(plan: Plan, from: Iterable<number>): Uint8Array {
  const isBelow = new Uint8Array(plan.taskCount);
  const queue = [...from];
  for (let place = 0; place < queue.length; place++) {
    for (const dependent of neighbours(plan.dependents, queue[place]!)) {
      if (isBelow[dependent] === 1) continue;
      isBelow[dependent] = 1;
      queue.push(dependent);
    }
  }
  return isBelow;
}

/** Invariant: an end is counted by its dependents when it leaves the queue, once, and not before. */
class Settling {
  readonly #plan: Plan;
  readonly #definition: Definition;
  readonly #stateOf: StateOf;
  readonly #queue: number[];
  /** Ends that wait in the queue, so that a first look at a task's dependencies leaves them to their turn. */
  readonly #queued: Set<number>;
  readonly #changed = new Map<number, TaskState>();
  readonly #tallies = new Map<number, Tally>();
  readonly #ready: number[] = [];
  readonly #skipped: number[] = [];
  readonly #cancelled: number[] = [];
  readonly #aborted: number[] = [];

  constructor(plan: Plan, definition: Definition, stateOf: StateOf, seeds: readonly number[]) {
    this.#plan = plan;
    this.#definition = definition;
    this.#stateOf = stateOf;
    this.#queued = new Set(seeds);
    this.#queue = [...this.#queued];
    const open = this.#queue.find((ordinal) => !isTerminalTask(stateOf(ordinal)));
    if (open !== undefined) throw new Error(`task ${plan.keys[open]} has not ended: it is ${stateOf(open)}`);
  }

  /** Cancels what has not started, but for compensation: `all_done` and `any_failed` tasks below a task that failed. */
  stop(): void {
    const dead: number[] = [];
    for (let ordinal = 0; ordinal < this.#plan.taskCount; ordinal++) {
      if (isHardDead(this.#definition, this.#stateOf, ordinal)) dead.push(ordinal);
    }
    const isBelow = findDownstream(this.#plan, dead);
    for (const [ordinal, task] of this.#definition.tasks.entries()) {
      const state = this.#stateOf(ordinal);
      const isCompensation = isBelow[ordinal] === 1 && task.when !== "all_succeeded";
      if (isTerminalTask(state) || isCompensation) continue;
      if (state === "LEASED") this.#aborted.push(ordinal);
      else this.#end(ordinal, "CANCELLED", this.#cancelled);
    }
  }

  run(): Settlement {
    for (let place = 0; place < this.#queue.length; place++) {
      const ended = this.#queue[place]!;
      this.#queued.delete(ended);
      for (const dependent of neighbours(this.#plan.dependents, ended)) {
        if (this.#now(dependent) === "BLOCKED") this.#count(dependent, ended);
      }
    }
    return {
      ready: this.#ready,
      skipped: this.#skipped,
      cancelled: this.#cancelled,
      aborted: this.#aborted,
      waiting: this.#listWaiting(),
    };
  }

  #count(dependent: number, ended: number): void {
    const known = this.#tallies.get(dependent);
    const tally = known ?? this.#tallyAll(dependent);
    if (known !== undefined) {
      tally.pending--;
      tallyEnd(tally, this.#now(ended), this.#definition.tasks[ended]!.allowFailure);
    }
    const decision = decideTally(this.#definition.tasks[dependent]!.when, tally);
    if (decision === "skipped") this.#end(dependent, "SKIPPED", this.#skipped);
    if (decision === "ready") {
      this.#changed.set(dependent, "READY");
      this.#ready.push(dependent);
    }
  }

  #tallyAll(dependent: number): Tally {
    const tally = emptyTally();
    for (const dependency of neighbours(this.#plan.dependencies, dependent)) {
      const state = this.#now(dependency);
      if (!isTerminalTask(state) || this.#queued.has(dependency)) tally.pending++;
      else tallyEnd(tally, state, this.#definition.tasks[dependency]!.allowFailure);
    }
    this.#tallies.set(dependent, tally);
    return tally;
  }

  #end(ordinal: number, state: TaskState, list: number[]): void {
    this.#changed.set(ordinal, state);
    this.#queued.add(ordinal);
    this.#queue.push(ordinal);
    list.push(ordinal);
  }

  #now(ordinal: number): TaskState {
    return this.#changed.get(ordinal) ?? this.#stateOf(ordinal);
  }

  #listWaiting(): Waiting[] {
    const waiting: Waiting[] = [];
    for (const [ordinal, { pending, unsuccessful }] of this.#tallies) {
      if (this.#now(ordinal) === "BLOCKED") waiting.push({ ordinal, pending, unsuccessful });
    }
    return waiting;
  }
}
