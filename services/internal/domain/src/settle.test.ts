import fc from "fast-check";
import { expect, test } from "vitest";
import { anyGraph, givenDefinition, type TaskSpec } from "../testing/given-graph.ts";
import type { Definition } from "./definition.ts";
import { neighbours } from "./graph.ts";
import { buildPlan, type Plan } from "./plan.ts";
import { recompute } from "./recompute.ts";
import { runOutcome, settleFailure } from "./settle.ts";
import { canMoveTask, isTerminalTask, type TaskState } from "./states.ts";

const task = (dependsOn: number[], options: Partial<TaskSpec> = {}): TaskSpec => ({
  dependsOn,
  when: "all_succeeded",
  allowFailure: false,
  ...options,
});

function settleIn(
  onFailure: "stop" | "finish",
  tasks: readonly TaskSpec[],
  states: readonly TaskState[],
  ended: number | number[],
) {
  const definition = givenDefinition({ onFailure, tasks });
  return settleFailure(buildPlan(definition), definition, (ordinal) => states[ordinal]!, ended);
}

test("under finish only what needs the dead task is skipped, however far down", () => {
  const tasks = [task([]), task([0]), task([1]), task([]), task([3])];

  const settlement = settleIn("finish", tasks, ["DEAD", "BLOCKED", "BLOCKED", "LEASED", "BLOCKED"], 0);

  expect(settlement).toEqual({ ready: [], skipped: [1, 2], cancelled: [], aborted: [], waiting: [] });
});

test("under stop what has not started is cancelled and what runs is told to abort", () => {
  const tasks = [task([]), task([0]), task([]), task([]), task([]), task([])];

  const settlement = settleIn("stop", tasks, ["DEAD", "BLOCKED", "READY", "LEASED", "RETRY_WAIT", "SUSPENDED"], 0);

  expect(settlement).toMatchObject({ ready: [], skipped: [], cancelled: [1, 2, 4, 5], aborted: [3] });
});

test("compensation below the dead task runs under stop, and the same beside it does not", () => {
  const cleanUp = task([0], { when: "all_done" });
  const undo = task([0, 1], { when: "any_failed" });
  const beside = task([4], { when: "all_done" });
  const tasks = [task([]), task([]), cleanUp, undo, task([]), beside];

  const settlement = settleIn("stop", tasks, ["DEAD", "LEASED", "BLOCKED", "BLOCKED", "READY", "BLOCKED"], 0);

  expect(settlement).toEqual({
    ready: [2],
    skipped: [],
    cancelled: [4, 5],
    aborted: [1],
    waiting: [{ ordinal: 3, pending: 1, unsuccessful: 1 }],
  });
});

test("a dead task with allow_failure stops nothing and satisfies its dependents", () => {
  const tasks = [task([], { allowFailure: true }), task([0]), task([0], { when: "any_failed" }), task([])];

  const settlement = settleIn("stop", tasks, ["DEAD", "BLOCKED", "BLOCKED", "READY"], 0);

  expect(settlement).toEqual({ ready: [1, 2], skipped: [], cancelled: [], aborted: [], waiting: [] });
});

test("a success skips what waited for a failure, and what needs that in turn", () => {
  const tasks = [task([]), task([0], { when: "any_failed" }), task([1]), task([1], { when: "all_done" })];

  const settlement = settleIn("stop", tasks, ["SUCCEEDED", "BLOCKED", "BLOCKED", "BLOCKED"], 0);

  expect(settlement).toMatchObject({ ready: [3], skipped: [1, 2] });
});

test("several ends at once are each counted once", () => {
  const tasks = [task([]), task([]), task([]), task([0, 1, 2], { when: "any_failed" })];

  const settlement = settleIn("finish", tasks, ["DEAD", "DEAD", "LEASED", "BLOCKED"], [0, 1, 1]);

  expect(settlement.waiting).toEqual([{ ordinal: 3, pending: 1, unsuccessful: 2 }]);
});

test("an end that has not come is a bug", () => {
  expect(() => settleIn("stop", [task([])], ["LEASED"], 0)).toThrow("task t0 has not ended: it is LEASED");
});

test("a compensated run is FAILED, and one whose failures were allowed is SUCCEEDED", () => {
  const failed = givenDefinition({ onFailure: "stop", tasks: [task([]), task([0], { when: "any_failed" })] });
  const allowed = givenDefinition({ onFailure: "stop", tasks: [task([], { allowFailure: true })] });

  expect(runOutcome(failed, (ordinal) => (ordinal === 0 ? "DEAD" : "SUCCEEDED"))).toBe("FAILED");
  expect(runOutcome(allowed, () => "DEAD")).toBe("SUCCEEDED");
  expect(runOutcome(failed, (ordinal) => (ordinal === 0 ? "DEAD" : "LEASED"))).toBeUndefined();
});

test("replaying the last dead letter opens what stop had cancelled elsewhere; others left behind keep it shut", () => {
  const definition = givenDefinition({ onFailure: "stop", tasks: [task([]), task([]), task([]), task([0])] });
  const plan = buildPlan(definition);
  const lone: TaskState[] = ["DEAD", "SUCCEEDED", "CANCELLED", "CANCELLED"];
  const twins: TaskState[] = ["DEAD", "DEAD", "CANCELLED", "CANCELLED"];

  expect(recompute(plan, definition, (ordinal) => lone[ordinal]!, [0])).toEqual({
    ready: [0, 2],
    blocked: [{ ordinal: 3, pending: 1, unsuccessful: 0 }],
    skipped: [],
  });
  expect(recompute(plan, definition, (ordinal) => twins[ordinal]!, [0]).ready).toEqual([0]);
});

test("a wide fan of failures is settled in one pass", () => {
  const width = 5000;
  const tasks = [
    ...Array.from({ length: width }, () => task([])),
    task([...Array(width).keys()], { when: "any_failed" }),
  ];
  const states = tasks.map((_, ordinal): TaskState => (ordinal === width ? "BLOCKED" : "DEAD"));

  expect(settleIn("finish", tasks, states, [...Array(width).keys()]).ready).toEqual([width]);
});

const END = { maxLength: 60 } as const;

test("any course of any run agrees with a naive model, ends, and can be retried to success", () => {
  fc.assert(
    fc.property(anyGraph(), fc.array(fc.nat(), END), fc.nat(), (spec, choices, replayed) => {
      const course = new Course(givenDefinition(spec));
      course.play(choices);
      const { definition, plan } = course;
      const ended = runOutcome(definition, course.state);
      const hard = definition.tasks.some((each, ordinal) => course.state(ordinal) === "DEAD" && !each.allowFailure);
      expect(ended).toBe(hard ? "FAILED" : "SUCCEEDED");

      const dead = plan.keys.flatMap((_, ordinal) => (course.state(ordinal) === "DEAD" ? [ordinal] : []));
      const reopen = replayed % 2 === 0 || dead.length === 0 ? "all" : [dead[replayed % dead.length]!];
      course.reopen(reopen);
      course.play([]);

      const outcome = runOutcome(definition, course.state);
      if (reopen === "all") expect(outcome).toBe("SUCCEEDED");
      else expect(outcome).toBeDefined();
    }),
    { numRuns: 400 },
  );
});

/** Plays a run as the mesh does, by counters and settlements, and compares each step with a naive model. */
class Course {
  readonly definition: Definition;
  readonly plan: Plan;
  readonly states: TaskState[];
  readonly pending: number[];
  readonly aborted = new Set<number>();

  constructor(definition: Definition) {
    this.definition = definition;
    this.plan = buildPlan(definition);
    this.pending = [...this.plan.initialPending];
    this.states = definition.tasks.map(() => "BLOCKED");
    for (const root of this.plan.roots) this.states[root] = "READY";
  }

  state = (ordinal: number): TaskState => this.states[ordinal]!;

  /** Each choice picks a task that can move and how it moves; when they are used up, everything succeeds. */
  play(choices: readonly number[]): void {
    for (let step = 0; ; step++) {
      const movable = this.states.flatMap((state, ordinal) =>
        state === "READY" || state === "LEASED" ? [ordinal] : [],
      );
      if (movable.length === 0) break;
      const choice = choices[step] ?? 0;
      const ordinal = movable[choice % movable.length]!;
      if (this.states[ordinal] === "READY") this.#move(ordinal, "LEASED");
      else if (this.aborted.has(ordinal)) this.#end(ordinal, "CANCELLED");
      else this.#end(ordinal, Math.floor(choice / movable.length) % 3 === 1 ? "DEAD" : "SUCCEEDED");
    }
    expect(this.states.filter((state) => !isTerminalTask(state))).toEqual([]);
  }

  reopen(reopen: "all" | number[]): void {
    const model = this.#naiveReopening(reopen);
    const { ready, blocked, skipped } = recompute(this.plan, this.definition, this.state, reopen);
    for (const ordinal of ready) this.#move(ordinal, "READY");
    for (const ordinal of skipped) this.#move(ordinal, "SKIPPED");
    for (const { ordinal, pending } of blocked) {
      this.#move(ordinal, "BLOCKED");
      this.pending[ordinal] = pending;
    }
    this.aborted.clear();
    expect(this.states).toEqual(model);
    this.#checkCounters();
  }

  #end(ordinal: number, state: TaskState): void {
    this.#move(ordinal, state);
    const model = this.#naiveSettlement(ordinal);
    if (state === "SUCCEEDED" && this.plan.isFastPath(ordinal)) this.#succeedPlainly(ordinal);
    else {
      const settlement = settleFailure(this.plan, this.definition, this.state, ordinal);
      for (const each of settlement.ready) this.#move(each, "READY");
      for (const each of settlement.skipped) this.#move(each, "SKIPPED");
      for (const each of settlement.cancelled) this.#move(each, "CANCELLED");
      for (const each of settlement.aborted) this.aborted.add(each);
      for (const each of settlement.waiting) this.pending[each.ordinal] = each.pending;
    }
    expect(this.states).toEqual(model);
    this.#checkCounters();
  }

  #succeedPlainly(ordinal: number): void {
    for (const dependent of neighbours(this.plan.dependents, ordinal)) {
      this.pending[dependent]!--;
      if (this.pending[dependent] === 0 && this.states[dependent] === "BLOCKED") this.#move(dependent, "READY");
    }
  }

  #move(ordinal: number, to: TaskState): void {
    expect(canMoveTask(this.states[ordinal]!, to), `${this.states[ordinal]} to ${to}`).toBe(true);
    this.states[ordinal] = to;
  }

  #checkCounters(): void {
    for (const [ordinal, state] of this.states.entries()) {
      if (state !== "BLOCKED") continue;
      const open = this.#dependencies(ordinal).filter((each) => !isTerminalTask(this.states[each]!));
      expect(this.pending[ordinal]).toBe(open.length);
    }
  }

  #dependencies(ordinal: number): number[] {
    return this.definition.tasks[ordinal]!.dependsOn.map((key) => this.plan.ordinalOf.get(key)!);
  }

  #isBelow(ordinal: number, above: (ordinal: number) => boolean): boolean {
    return this.#dependencies(ordinal).some((each) => above(each) || this.#isBelow(each, above));
  }

  /** The `when` table, once more and in other words. */
  #naiveWhen(ordinal: number, states: readonly TaskState[]): TaskState {
    const ends = this.#dependencies(ordinal).map((each) => {
      const state = states[each]!;
      return state === "DEAD" && this.definition.tasks[each]!.allowFailure ? "ALLOWED" : state;
    });
    const isOpen = ends.some((end) => end !== "ALLOWED" && !isTerminalTask(end));
    const { when } = this.definition.tasks[ordinal]!;
    if (when === "all_succeeded" && ends.some((end) => ["DEAD", "SKIPPED", "CANCELLED"].includes(end)))
      return "SKIPPED";
    if (isOpen) return "BLOCKED";
    if (when === "any_failed") return ends.includes("DEAD") || ends.includes("ALLOWED") ? "READY" : "SKIPPED";
    return "READY";
  }

  #naiveSettlement(ended: number): TaskState[] {
    const states = [...this.states];
    const isHard = (each: number) => states[each] === "DEAD" && !this.definition.tasks[each]!.allowFailure;
    if (this.definition.onFailure === "stop" && isHard(ended)) {
      for (const [ordinal, each] of this.definition.tasks.entries()) {
        const compensates = each.when !== "all_succeeded" && this.#isBelow(ordinal, isHard);
        if (!compensates && ["BLOCKED", "READY"].includes(states[ordinal]!)) states[ordinal] = "CANCELLED";
      }
    }
    for (let before = ""; before !== states.join(); ) {
      before = states.join();
      for (const [ordinal, state] of states.entries()) {
        if (state === "BLOCKED") states[ordinal] = this.#naiveWhen(ordinal, states);
      }
    }
    return states;
  }

  #naiveReopening(reopen: "all" | number[]): TaskState[] {
    const isEnded = (each: number) => ["DEAD", "CANCELLED", "SKIPPED"].includes(this.states[each]!);
    const below = (from: number[]) => (each: number) =>
      from.includes(each) || this.#isBelow(each, (above) => from.includes(above));
    const isLeft = (each: number) => this.states[each] === "DEAD" && !this.definition.tasks[each]!.allowFailure;
    const all = [...this.states.keys()];
    let inScope = (_: number) => true;
    if (reopen !== "all") {
      const narrow = below(reopen);
      const isLast = !all.some((each) => isLeft(each) && !narrow(each));
      inScope = isLast ? below([...reopen, ...all.filter((each) => this.states[each] === "CANCELLED")]) : narrow;
    }
    const states: TaskState[] = [];
    const derive = (each: number): TaskState => {
      if (states[each] === undefined) {
        for (const dependency of this.#dependencies(each)) derive(dependency);
        states[each] = inScope(each) && isEnded(each) ? this.#naiveWhen(each, states) : this.states[each]!;
      }
      return states[each];
    };
    return all.map(derive);
  }
}
