import { AttemptOutcome as AttemptOutcomeEnum, EventType as EventTypeEnum } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  ATTEMPT_OUTCOMES,
  canMoveRun,
  canMoveTask,
  EVENT_TYPES,
  isActiveRun,
  isTerminalRun,
  isTerminalTask,
  RUN_MOVES,
  RUN_STATES,
  type RunState,
  readTaskState,
  TASK_MOVES,
  TASK_STATES,
  type TaskState,
} from "./states.ts";

const runStates = Object.keys(RUN_STATES) as RunState[];
const taskStates = Object.keys(TASK_STATES) as TaskState[];

test.each([
  ["run states", RUN_STATES, Run_State],
  ["task states", TASK_STATES, Task_State],
  ["attempt outcomes", ATTEMPT_OUTCOMES, AttemptOutcomeEnum],
  ["event types", EVENT_TYPES, EventTypeEnum],
])("%s have the numbers of the contracts", (_what, codes, contract) => {
  const named = Object.entries(contract).filter(([name, code]) => typeof code === "number" && name !== "UNSPECIFIED");

  expect(codes).toEqual(Object.fromEntries(named));
});

test("a number reads back to its name, and another number is a bug", () => {
  for (const state of taskStates) expect(readTaskState(TASK_STATES[state])).toBe(state);

  expect(() => readTaskState(0)).toThrow("no task state has the number 0");
});

test("a terminal run is left only by a retry, and a succeeded one never", () => {
  for (const state of runStates.filter(isTerminalRun)) {
    expect(Object.keys(RUN_MOVES[state])).toEqual(state === "SUCCEEDED" ? [] : ["retried"]);
  }
});

test("a succeeded task keeps its result for ever", () => {
  expect(taskStates.filter((to) => canMoveTask("SUCCEEDED", to))).toEqual([]);
});

test("every state that has not ended has a way to be cancelled", () => {
  for (const state of runStates.filter((each) => !isTerminalRun(each)))
    expect(canMoveRun(state, "CANCELLED")).toBe(true);
  for (const state of taskStates.filter((each) => !isTerminalTask(each))) {
    expect(canMoveTask(state, "CANCELLED")).toBe(true);
  }
});

test("every state that has not ended leads to success", () => {
  const runReaches = (from: RunState) => reachable<RunState>(from, runStates, canMoveRun).has("SUCCEEDED");
  const taskReaches = (from: TaskState) => reachable<TaskState>(from, taskStates, canMoveTask).has("SUCCEEDED");

  expect(runStates.filter((state) => !runReaches(state))).toEqual([]);
  expect(taskStates.filter((state) => !taskReaches(state))).toEqual([]);
});

test("only a lease ends in success, whatever moves are made", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(), { maxLength: 40 }), (choices) => {
      let state: TaskState = "BLOCKED";
      for (const choice of choices) {
        const moves: TaskState[] = Object.values(TASK_MOVES[state]);
        if (moves.length === 0) break;
        const next = moves[choice % moves.length]!;
        expect(canMoveTask(state, next)).toBe(true);
        if (next === "SUCCEEDED") expect(state).toBe("LEASED");
        state = next;
      }
    }),
  );
});

test("a run is active, pending or ended", () => {
  for (const state of runStates) {
    expect([isActiveRun(state), isTerminalRun(state), state === "PENDING"].filter(Boolean)).toHaveLength(1);
  }
});

function reachable<State>(
  from: State,
  all: readonly State[],
  canMove: (from: State, to: State) => boolean,
): Set<State> {
  const found = new Set([from]);
  for (const state of found) for (const to of all) if (canMove(state, to)) found.add(to);
  return found;
}
