import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Task_State, Task_StateSchema } from "@runmesh/contracts/task/v1/task_pb";
import { OnFailure } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { listEvents, tellAttempts, tellEvents } from "./history.ts";

const NEVER_RETRIED = { type: "Broken", message: "broken", retryable: false };
const ONE_ATTEMPT = { maxAttempts: 1 };

const stateOf = async (mesh: TestMesh, runId: bigint) => (await mesh.runs.getRun({ runId })).run!.state;

async function taskStates(mesh: TestMesh, runId: bigint): Promise<Record<string, string>> {
  const { tasks } = await mesh.tasks.listTasks({ runId, pageSize: 1_000 });
  return Object.fromEntries(tasks.map((task) => [task.key, Task_StateSchema.value[task.state]!.localName]));
}

/** A run of one task that has failed: a dead letter. */
async function givenDeadLetter(mesh: TestMesh, workflow: string, type = "Broken"): Promise<bigint> {
  const { runId } = await mesh.runs.startRun({ workflow });
  const worker = await mesh.worker();
  expect(await worker.fail(await worker.acquireOne(), { ...NEVER_RETRIED, type })).toBe("accepted");
  expect(await stateOf(mesh, runId)).toBe(Run_State.FAILED);
  return runId;
}

test("B-2 a retried run keeps results, resets every counter, and goes on with attempt numbers and fences", async () => {
  await using mesh = await startMesh();
  const retry = { maxAttempts: 2, initialInterval: "1ms", jitter: 0 };
  const runId = await mesh.given.run({
    tasks: [{ key: "first" }, { key: "second", dependsOn: ["first"], retry }, { key: "third", dependsOn: ["second"] }],
  });
  const worker = await mesh.worker();
  await worker.complete(await worker.acquireOne());
  const failTwice = async () => {
    const tried = [await worker.acquireOne()];
    await worker.fail(tried[0]!);
    tried.push(await worker.acquireOne());
    await worker.fail(tried[1]!);
    return tried.map((task) => ({ attempt: task.attempt, fence: task.fence }));
  };
  const before = await failTwice();
  const failed = await mesh.ended(runId);

  await mesh.runs.retryRun({ runId });
  const after = await failTwice();
  const failedAgain = await mesh.ended(runId);
  const { run } = await mesh.runs.retryRun({ runId });
  const keys = await worker.drain();

  expect([failed.state, failedAgain.state]).toEqual([Run_State.FAILED, Run_State.FAILED]);
  expect([...before, ...after].map((task) => task.attempt)).toEqual([1, 2, 3, 4]);
  const fences = [...before, ...after].map((task) => task.fence);
  expect(fences).toEqual([...fences].sort((a, b) => Number(a - b)));
  expect(run).toMatchObject({ state: Run_State.RUNNING, tasks: { open: 2, dead: 0, succeeded: 1 } });
  expect(run!.failure).toBeUndefined();
  expect(keys).toEqual(["second", "third"]);
  expect(await tellEvents(mesh, runId)).toEqual([
    "RUN_CREATED",
    "TASK_SUCCEEDED first",
    "TASK_RETRYING second",
    "TASK_DEAD second",
    "RUN_FAILED",
    "RUN_RETRIED",
    "TASK_RETRYING second",
    "TASK_DEAD second",
    "RUN_FAILED",
    "RUN_RETRIED",
    "TASK_SUCCEEDED second",
    "TASK_SUCCEEDED third",
    "RUN_SUCCEEDED",
  ]);
});

test("B-2 losses are counted anew after a retry", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxLost: 0 } }] });
  const worker = await mesh.worker();
  const lose = async () => {
    const task = await worker.acquireOne();
    await worker.begin(task);
    await mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp()", []);
  };
  await lose();
  const lost = await mesh.ended(runId);

  await mesh.runs.retryRun({ runId });
  await lose();
  const lostAgain = await mesh.ended(runId);

  for (const run of [lost, lostAgain]) {
    expect(run).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "WORKER_LOST" } });
  }
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["LOST", "LOST"]);
});

test("a retry of a cancelled run derives every open task again and keeps what succeeded", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }, { key: "c" }] });
  const worker = await mesh.worker();
  await worker.complete(await worker.acquireOne());
  await mesh.runs.cancelRun({ runId });

  await mesh.runs.retryRun({ runId });
  const states = await taskStates(mesh, runId);
  const keys = await worker.drain();

  expect(states).toEqual({ a: "SUCCEEDED", b: "READY", c: "READY" });
  expect(keys.sort()).toEqual(["b", "c"]);
  expect(await mesh.ended(runId)).toMatchObject({ state: Run_State.SUCCEEDED, tasks: { succeeded: 3, cancelled: 0 } });
  expect((await listEvents(mesh, runId)).length).toBe(7);
});

test("what cannot be retried is refused, and the refusal does not spend the request id", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: ONE_ATTEMPT }] });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();

  const early = mesh.runs.retryRun({ runId, requestId: "again" });
  await expect(early).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
  await worker.fail(task);
  const { run } = await mesh.runs.retryRun({ runId, requestId: "again" });
  const { run: repeated } = await mesh.runs.retryRun({ runId, requestId: "again" });

  expect(run!.state).toBe(Run_State.RUNNING);
  expect(repeated!.sequence).toBe(run!.sequence);
  await expect(mesh.runs.retryRun({ runId })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("dead letters are listed newest first, by workflow and error type, a page at a time", async () => {
  await using mesh = await startMesh();
  const task = { key: "a", retry: ONE_ATTEMPT };
  const [{ name: pay }, { name: mail }] = [
    await mesh.given.workflow({ tasks: [task] }),
    await mesh.given.workflow({ tasks: [task] }),
  ];
  const declined = await givenDeadLetter(mesh, pay, "CardDeclined");
  const broken = await givenDeadLetter(mesh, pay);
  const bounced = await givenDeadLetter(mesh, mail, "Bounced");
  const list = async (filter: object) => (await mesh.tasks.listDeadLetters(filter)).tasks.map((found) => found.runId);

  const first = await mesh.tasks.listDeadLetters({ pageSize: 2 });
  const rest = await mesh.tasks.listDeadLetters({ pageSize: 2, pageToken: first.nextPageToken });

  expect(await list({})).toEqual([bounced, broken, declined]);
  expect(await list({ workflow: pay })).toEqual([broken, declined]);
  expect(await list({ errorType: "CardDeclined" })).toEqual([declined]);
  expect(await list({ workflow: mail, errorType: "CardDeclined" })).toEqual([]);
  expect(first.tasks.map((found) => found.runId)).toEqual([bounced, broken]);
  expect(rest.tasks.map((found) => found.runId)).toEqual([declined]);
  expect(rest.nextPageToken).toBe("");
  expect(first.tasks[0]).toMatchObject({ state: Task_State.DEAD, error: { type: "Bounced" } });
});

test("a replayed dead letter opens itself and what is downstream; a dead letter left behind fails the run again", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    onFailure: OnFailure.FINISH,
    tasks: [
      { key: "a", priority: 2, retry: ONE_ATTEMPT },
      { key: "b", priority: 1, retry: ONE_ATTEMPT },
      { key: "after-a", dependsOn: ["a"] },
      { key: "after-b", dependsOn: ["b"] },
    ],
  });
  const worker = await mesh.worker();
  for (const task of await worker.acquire(2)) await worker.fail(task);
  expect((await mesh.ended(runId)).state).toBe(Run_State.FAILED);
  const { task } = await mesh.tasks.getTask({ runId, key: "a" });

  await mesh.tasks.replayTask({ taskId: task!.id });
  const states = await taskStates(mesh, runId);
  const keys = await worker.drain();
  const run = await mesh.ended(runId);

  expect(states).toEqual({ a: "READY", b: "DEAD", "after-a": "BLOCKED", "after-b": "SKIPPED" });
  expect(keys).toEqual(["a", "after-a"]);
  expect(run).toMatchObject({ state: Run_State.FAILED, tasks: { succeeded: 2, dead: 1, skipped: 1 } });
  const told = await tellEvents(mesh, runId);
  expect(told.slice(-4)).toEqual(["TASK_REPLAYED a", "TASK_SUCCEEDED a", "TASK_SUCCEEDED after-a", "RUN_FAILED"]);
  await expect(mesh.tasks.replayTask({ taskId: task!.id })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("D-13 a bulk replay by filter walks every page once and passes over what was replayed meanwhile", async () => {
  await using mesh = await startMesh();
  const { name } = await mesh.given.workflow({ tasks: [{ key: "a", retry: ONE_ATTEMPT }] });
  const runs = Array.from({ length: 25 }, () => ({ workflow: name }));
  await mesh.runs.startRuns({ runs });
  const worker = await mesh.worker();
  const tasks = await worker.acquire(100);
  for (const task of tasks)
    await worker.fail(task, { ...NEVER_RETRIED, type: task.taskId % 2n === 0n ? "Even" : "Odd" });
  const other = await givenDeadLetter(mesh, (await mesh.given.workflow({ tasks: [{ retry: ONE_ATTEMPT }] })).name);
  await mesh.runs.retryRun({ runId: tasks[3]!.runId });

  let [replayed, passedOver, pages] = [0, 0, 0];
  for (let pageToken = ""; ; ) {
    const page = await mesh.tasks.replayDeadLetters({ workflow: name, pageSize: 7, pageToken });
    replayed += page.replayedCount;
    passedOver += page.passedOverCount;
    pages++;
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  const again = await mesh.tasks.replayDeadLetters({ workflow: name });

  expect([replayed, passedOver, pages]).toEqual([24, 0, 4]);
  expect(again).toMatchObject({ replayedCount: 0, passedOverCount: 0 });
  expect(await worker.drain()).toHaveLength(25);
  expect(await stateOf(mesh, other)).toBe(Run_State.FAILED);
});

test("V-3 a released lease burns no attempt, keeps its place, and its number goes on", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxAttempts: 1, maxLost: 0 } }] });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  await worker.begin(first);
  await mesh.given.run({ tasks: [{ key: "other" }] });

  expect(await worker.release(first)).toBe("accepted");
  expect(await worker.complete(first)).toBe("FENCE_STALE");
  const second = await worker.acquireOne();

  expect(second).toMatchObject({ key: "a", attempt: 2 });
  expect(await worker.complete(second)).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["RELEASED", "SUCCEEDED"]);
});

test("G7 a lost task goes ahead of the backlog once, and waits the retry delay when it is lost again in a row", async () => {
  await using mesh = await startMesh();
  const retry = { initialInterval: "1h" };
  const runId = await mesh.given.run({ tasks: [{ key: "crasher", retry }] });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  await worker.begin(first);
  for (let i = 0; i < 5; i++) await mesh.given.run({ tasks: [{ key: "backlog" }] });
  const expire = () => mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp()", []);

  await expire();
  expect((await worker.lost()).fence).toBe(first.fence);
  const second = await worker.acquireOne();
  await worker.begin(second);
  await expire();
  await worker.lost();
  const keys = await worker.drain();

  expect(second).toMatchObject({ key: "crasher", attempt: 2 });
  expect(keys).toEqual(Array(5).fill("backlog"));
  expect(await taskStates(mesh, runId)).toEqual({ crasher: "RETRY_WAIT" });
  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "TASK_RETRYING crasher", "TASK_RETRYING crasher"]);
});

test("a lease lost before its start burns nothing and is told by no event", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxAttempts: 1, maxLost: 0 } }] });
  const worker = await mesh.worker();
  await worker.acquireOne();

  await mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp()", []);
  const second = await worker.acquireOne();

  expect(second.attempt).toBe(2);
  expect(await worker.complete(second)).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["LOST", "SUCCEEDED"]);
  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "TASK_SUCCEEDED a", "RUN_SUCCEEDED"]);
});

test("a task that is lost again and again before it is heard to start ends DEAD, and is counted anew after a retry", async () => {
  await using mesh = await startMesh();
  const retry = { maxLost: 1, initialInterval: "1ms" };
  const runId = await mesh.given.run({ tasks: [{ key: "killer", retry }] });
  const worker = await mesh.worker();
  const loseUntilDead = async () => {
    for (let losses = 0; ; losses++) {
      if ((await stateOf(mesh, runId)) === Run_State.FAILED) return losses;
      const [task] = await worker.acquire(1, { waitMs: 200 });
      if (task === undefined) losses--;
      await mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp()", []);
      if (task !== undefined) await worker.lost();
    }
  };

  const first = await loseUntilDead();
  await mesh.runs.retryRun({ runId });
  const second = await loseUntilDead();

  expect([first, second]).toEqual([5, 5]);
  const { run } = await mesh.runs.getRun({ runId });
  expect(run!.failure).toMatchObject({ errorType: "WORKER_LOST" });
  expect(await tellAttempts(mesh, runId, "killer")).toEqual(Array(10).fill("LOST"));
});

test("a move that is repeated by its request id undoes nothing that came after it, and moves another run anew", async () => {
  await using mesh = await startMesh();
  const [one, other] = [await mesh.given.run(), await mesh.given.run()];
  const stateOf = async (runId: bigint) => (await mesh.runs.getRun({ runId })).run!.state;

  await mesh.runs.pauseRun({ runId: one, requestId: "p" });
  await mesh.runs.resumeRun({ runId: one, requestId: "r" });
  await mesh.runs.pauseRun({ runId: one, requestId: "p" });
  const afterPause = await stateOf(one);
  await mesh.runs.pauseRun({ runId: one });
  await mesh.runs.resumeRun({ runId: one, requestId: "r" });
  const afterResume = await stateOf(one);
  await mesh.runs.pauseRun({ runId: other, requestId: "p" });
  const otherPaused = await stateOf(other);
  for (const runId of [one, other]) await mesh.runs.cancelRun({ runId });
  for (const runId of [one, other]) await mesh.runs.retryRun({ runId, requestId: "t" });

  expect([afterPause, afterResume, otherPaused]).toEqual([Run_State.RUNNING, Run_State.PAUSED, Run_State.PAUSED]);
  expect([await stateOf(one), await stateOf(other)]).toEqual([Run_State.RUNNING, Run_State.RUNNING]);
});
