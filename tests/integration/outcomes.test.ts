import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { OnFailure, When } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { GivenDefinition, GivenTask } from "@runmesh/testing/given";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: TestMesh;
let worker: MeshWorker;
beforeAll(async () => {
  mesh = await startMesh();
  worker = await mesh.worker();
});
afterAll(() => mesh[Symbol.asyncDispose]());

const { SUCCEEDED, DEAD, SKIPPED, CANCELLED } = Task_State;

/** A task whose key begins with `bad` fails; none is tried again. */
const task = (key: string, dependsOn: string[] = [], rest: GivenTask = {}): GivenTask => ({
  key,
  dependsOn,
  retry: { maxAttempts: 1 },
  ...rest,
});
const finish = OnFailure.FINISH;
const anyFailed = { when: When.ANY_FAILED };
const allDone = { when: When.ALL_DONE };
const forgiven = { allowFailure: true };

interface Case {
  readonly what: string;
  readonly definition: GivenDefinition;
  readonly run: Run_State;
  readonly tasks: Readonly<Record<string, Task_State>>;
}

const CASES: readonly Case[] = [
  {
    what: "stop: what has not started is cancelled, at the first death",
    definition: { tasks: [task("bad"), task("b", ["bad"]), task("c", ["b"]), task("late", ["good"]), task("good")] },
    run: Run_State.FAILED,
    tasks: { bad: DEAD, b: CANCELLED, c: CANCELLED, late: CANCELLED, good: CANCELLED },
  },
  {
    what: "stop: compensation downstream still runs, and what it leads to",
    definition: {
      tasks: [
        task("good"),
        task("bad", ["good"]),
        task("b", ["bad"]),
        task("undo", ["bad"], anyFailed),
        task("report", ["bad", "b"], allDone),
        task("after-undo", ["undo"]),
        task("elsewhere", ["good"], allDone),
      ],
    },
    run: Run_State.FAILED,
    tasks: {
      good: SUCCEEDED,
      bad: DEAD,
      b: CANCELLED,
      undo: SUCCEEDED,
      report: SUCCEEDED,
      "after-undo": CANCELLED,
      elsewhere: CANCELLED,
    },
  },
  {
    what: "finish: independent branches go on, and what needs the dead one is skipped, all the way down",
    definition: {
      onFailure: finish,
      tasks: [
        task("bad"),
        task("b", ["bad"]),
        task("c", ["b"]),
        task("good"),
        task("late", ["good"]),
        task("both", ["c", "late"]),
      ],
    },
    run: Run_State.FAILED,
    tasks: { bad: DEAD, b: SKIPPED, c: SKIPPED, good: SUCCEEDED, late: SUCCEEDED, both: SKIPPED },
  },
  {
    what: "allow_failure: a death that is allowed satisfies, and the run succeeds",
    definition: { tasks: [task("bad", [], forgiven), task("b", ["bad"]), task("undo", ["bad"], anyFailed)] },
    run: Run_State.SUCCEEDED,
    tasks: { bad: DEAD, b: SUCCEEDED, undo: SUCCEEDED },
  },
  {
    what: "any_failed: skipped where nothing failed, and so is what needs it",
    definition: {
      tasks: [
        task("good"),
        task("undo", ["good"], anyFailed),
        task("b", ["undo"]),
        task("end", ["b", "good"], allDone),
      ],
    },
    run: Run_State.SUCCEEDED,
    tasks: { good: SUCCEEDED, undo: SKIPPED, b: SKIPPED, end: SUCCEEDED },
  },
  {
    what: "any_failed: waits for all, and one failure of several is enough",
    definition: { onFailure: finish, tasks: [task("bad"), task("good"), task("undo", ["good", "bad"], anyFailed)] },
    run: Run_State.FAILED,
    tasks: { bad: DEAD, good: SUCCEEDED, undo: SUCCEEDED },
  },
  {
    what: "any_failed: a skipped dependency is no failure",
    definition: {
      onFailure: finish,
      tasks: [task("bad"), task("b", ["bad"]), task("undo", ["b"], anyFailed), task("end", ["undo"], allDone)],
    },
    run: Run_State.FAILED,
    tasks: { bad: DEAD, b: SKIPPED, undo: SKIPPED, end: SUCCEEDED },
  },
  {
    what: "all_done: runs after deaths and skips alike",
    definition: {
      onFailure: finish,
      tasks: [task("bad"), task("b", ["bad"]), task("end", ["bad", "b"], allDone), task("next", ["end"])],
    },
    run: Run_State.FAILED,
    tasks: { bad: DEAD, b: SKIPPED, end: SUCCEEDED, next: SUCCEEDED },
  },
];

test.each(CASES.map((each) => [each.what, each] as const))("%s", async (_what, { definition, run: state, tasks }) => {
  const runId = await mesh.given.run(definition);

  await work();
  const run = await mesh.ended(runId);

  expect(run.state).toBe(state);
  expect(await statesOf(runId)).toEqual(tasks);
  const ended = Object.values(tasks);
  expect(run.tasks).toMatchObject({
    total: ended.length,
    open: 0,
    succeeded: ended.filter((each) => each === SUCCEEDED).length,
    dead: ended.filter((each) => each === DEAD).length,
    skipped: ended.filter((each) => each === SKIPPED).length,
    cancelled: ended.filter((each) => each === CANCELLED).length,
  });
  const { events } = await mesh.runs.listEvents({ runId });
  expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, i) => BigInt(i + 1)));
  const skipped = events.filter(({ type }) => type === EventType.TASK_SKIPPED).map(({ taskKey }) => taskKey);
  expect(skipped.sort()).toEqual(
    Object.keys(tasks)
      .filter((key) => tasks[key] === SKIPPED)
      .sort(),
  );
});

test("stop: a handler that runs is told to abort, and its result is not wanted", async () => {
  const runId = await mesh.given.run({ tasks: [task("bad"), task("running")] });
  const leased = await worker.acquire(2);
  const [bad, running] = ["bad", "running"].map((key) => leased.find((each) => each.key === key)!);
  await worker.begin(bad!, running!);

  expect(await worker.fail(bad!, { type: "Broken", message: "x" })).toBe("accepted");

  expect(await worker.lost()).toMatchObject({ taskId: running!.taskId, fence: running!.fence });
  expect(await worker.complete(running!)).toMatch(/RUN_NOT_ACTIVE|FENCE_STALE/);
  expect(await mesh.ended(runId)).toMatchObject({ state: Run_State.FAILED, failure: { taskKey: "bad" } });
  expect(await statesOf(runId)).toEqual({ bad: DEAD, running: CANCELLED });
});

test.each([
  ["a member of the input", '{"a":{"b":[{"$ref":"#/input/no/such"}]}}', "params/a/b/0: #/input/no/such found nothing"],
  ["an item of an output", '{"$ref":"#/tasks/good/output/7"}', "params: #/tasks/good/output/7 found nothing"],
])("a reference to %s that is not there fails the task with the path, once", async (_what, params, message) => {
  const runId = await mesh.given.run(
    { tasks: [task("good"), { key: "t", params, dependsOn: ["good"] }] },
    { input: "{}" },
  );

  await work();
  const run = await mesh.ended(runId);

  expect(run).toMatchObject({
    state: Run_State.FAILED,
    failure: { taskKey: "t", errorType: "UNRESOLVED_REFERENCE", message },
  });
  const { attempts } = await mesh.tasks.listAttempts({ taskId: (runId << 20n) + 1n });
  expect(attempts).toHaveLength(1);
});

test("a default stands in for what is not there, and a null that is there is a value", async () => {
  const params = `{
    "missing": {"$ref": "#/input/x", "default": 9007199254740993},
    "dead": {"$ref": "#/tasks/bad/output/x", "default": null},
    "null": {"$ref": "#/input/nothing", "default": 1},
    "literal": {"$literal": {"$ref": "#/input/x"}}
  }`;
  const runId = await mesh.given.run(
    { tasks: [task("bad", [], forgiven), { key: "t", params }] },
    { input: '{"nothing":null}' },
  );
  const seen = await work();

  expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
  expect(seen.get("t")).toBe('{"missing":9007199254740993,"dead":null,"null":null,"literal":{"$ref":"#/input/x"}}');
});

/** Works until nothing is ready; answers the params of each task by key. */
async function work(): Promise<Map<string, string>> {
  const seen = new Map<string, string>();
  for (let tasks = await worker.acquire(1); tasks.length > 0; tasks = await worker.acquire(1)) {
    for (const each of tasks) {
      seen.set(each.key, Buffer.from(each.paramsJson).toString("utf8"));
      const isBad = each.key.startsWith("bad");
      const answer = isBad ? worker.fail(each, { type: "Broken", message: "x" }) : worker.complete(each, "[]");
      expect(await answer).toBe("accepted");
    }
  }
  return seen;
}

async function statesOf(runId: bigint): Promise<Record<string, Task_State>> {
  const { tasks } = await mesh.tasks.listTasks({ runId, pageSize: 1_000 });
  return Object.fromEntries(tasks.map(({ key, state }) => [key, state]));
}
