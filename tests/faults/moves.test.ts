import { AttemptOutcome } from "@runmesh/contracts/event/v1/event_pb";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Task_StateSchema } from "@runmesh/contracts/task/v1/task_pb";
import { OnFailure, When } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { listAttempts, listEvents, tellAttempts, tellEvents } from "./history.ts";

const NEVER_RETRIED = { type: "Broken", message: "broken", retryable: false };
const ONE_ATTEMPT = { maxAttempts: 1 };

const startedLease = ({ taskId, fence }: LeasedTask) => ({ taskId, fence, started: true });
const stateOf = async (mesh: TestMesh, runId: bigint) => (await mesh.runs.getRun({ runId })).run!.state;

async function taskStates(mesh: TestMesh, runId: bigint): Promise<Record<string, string>> {
  const { tasks } = await mesh.tasks.listTasks({ runId, pageSize: 1_000 });
  return Object.fromEntries(tasks.map((task) => [task.key, Task_StateSchema.value[task.state]!.localName]));
}

test("a cancelled run accepts no completion, renews no lease, and tells its worker", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b" }, { key: "c", dependsOn: ["a"] }] });
  const worker = await mesh.worker();
  const [running, prefetched] = await worker.acquire(2);
  await worker.begin(running!);

  const { run } = await mesh.runs.cancelRun({ runId });

  expect(run).toMatchObject({ state: Run_State.CANCELLED, tasks: { total: 3, open: 0, cancelled: 3 } });
  const told = [await worker.lost(), await worker.lost()].map((lease) => lease.fence).sort();
  expect(told).toEqual([running!.fence, prefetched!.fence].sort());
  expect(await worker.complete(running!)).toBe("RUN_NOT_ACTIVE");
  expect(await worker.fail(running!)).toBe("RUN_NOT_ACTIVE");
  expect(await worker.renew([startedLease(prefetched!)])).toEqual([prefetched!.taskId]);
  expect(await worker.acquire(10)).toEqual([]);
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["CANCELLED"]);
  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "RUN_CANCELLED"]);
});

test("cancelling again answers the cancelled run, and one that ended otherwise is refused", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const cancelled = await mesh.given.run();
  await mesh.runs.cancelRun({ runId: cancelled });
  const succeeded = await mesh.given.run();
  await worker.drain();

  const { run } = await mesh.runs.cancelRun({ runId: cancelled });
  const late = mesh.runs.cancelRun({ runId: succeeded });

  expect(run).toMatchObject({ state: Run_State.CANCELLED, sequence: 2n });
  await expect(late).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("a paused run leases nothing, accepts what runs, holds what becomes ready, and resumes all of it", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [{ key: "a", priority: 1 }, { key: "b" }, { key: "c", dependsOn: ["a"] }],
  });
  const worker = await mesh.worker();
  const running = await worker.acquireOne();
  await worker.begin(running);

  await mesh.runs.pauseRun({ runId });
  const whilePaused = await worker.acquire(10);
  const completed = await worker.complete(running);
  const afterCompletion = await worker.acquire(10);
  const { run } = await mesh.runs.resumeRun({ runId });
  const keys = await worker.drain();

  expect(running.key).toBe("a");
  expect([whilePaused, afterCompletion]).toEqual([[], []]);
  expect(completed).toBe("accepted");
  expect(run!.state).toBe(Run_State.RUNNING);
  expect(keys.sort()).toEqual(["b", "c"]);
  expect(await tellEvents(mesh, runId)).toEqual([
    "RUN_CREATED",
    "RUN_PAUSED",
    "TASK_SUCCEEDED a",
    "RUN_RESUMED",
    "TASK_SUCCEEDED b",
    "TASK_SUCCEEDED c",
    "RUN_SUCCEEDED",
  ]);
});

test("a run may end while it is paused, by its last running task, and pausing or resuming it then is refused", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await mesh.runs.pauseRun({ runId });

  const outcome = await worker.complete(task);

  expect(outcome).toBe("accepted");
  expect(await stateOf(mesh, runId)).toBe(Run_State.SUCCEEDED);
  await expect(mesh.runs.pauseRun({ runId })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
  await expect(mesh.runs.resumeRun({ runId })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("a failure during a pause waits for the resume, and a paused run can be cancelled", async () => {
  await using mesh = await startMesh();
  const retry = { initialInterval: "1ms", jitter: 0 };
  const failing = await mesh.given.run({ tasks: [{ key: "a", retry }] });
  const cancelled = await mesh.given.run({ tasks: [{ key: "b" }] });
  const worker = await mesh.worker();
  const a = (await worker.acquire(2)).find((task) => task.key === "a")!;
  await mesh.runs.pauseRun({ runId: failing });
  await mesh.runs.pauseRun({ runId: cancelled });

  const failed = await worker.fail(a);
  const { run } = await mesh.runs.cancelRun({ runId: cancelled });
  const whilePaused = await worker.acquire(1, { waitMs: 300 });
  await mesh.runs.resumeRun({ runId: failing });
  const again = await worker.acquireOne();

  expect(failed).toBe("accepted");
  expect(run!.state).toBe(Run_State.CANCELLED);
  expect(whilePaused).toEqual([]);
  expect(again).toMatchObject({ key: "a", attempt: 2 });
});

test("pausing and resuming again change nothing, and no event is written", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();

  await mesh.runs.resumeRun({ runId });
  for (let i = 0; i < 3; i++) await mesh.runs.pauseRun({ runId });
  for (let i = 0; i < 3; i++) await mesh.runs.resumeRun({ runId });

  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "RUN_PAUSED", "RUN_RESUMED"]);
});

test("schedule-to-start stands still during a pause: what was waited before it counts, the pause does not", async () => {
  await using mesh = await startMesh();
  const timeouts = { scheduleToStart: "10s" };
  const spent = await mesh.given.run({ tasks: [{ key: "spent", timeouts }] });
  const young = await mesh.given.run({ tasks: [{ key: "young", timeouts }] });
  const waited = (runId: bigint, seconds: number) =>
    mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - $2::int * interval '1 s' WHERE task_id >> 20 = $1", [
      runId,
      seconds,
    ]);
  await waited(spent, 9);
  for (const runId of [spent, young]) await mesh.runs.pauseRun({ runId });
  await mesh.db.rows("", "UPDATE held SET due_at = due_at - interval '1 h', held_at = held_at - interval '1 h'", []);

  for (const runId of [spent, young]) await mesh.runs.resumeRun({ runId });
  const ended = await mesh.ended(spent);

  expect(ended).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "SCHEDULE_TO_START_TIMEOUT" } });
  expect(await taskStates(mesh, young)).toEqual({ young: "READY" });
  await (await mesh.worker()).drain();
  expect(await stateOf(mesh, young)).toBe(Run_State.SUCCEEDED);
});

test("D-1 schedule-to-start ends a task nobody started: DEAD, not retried, and kept in history", async () => {
  await using mesh = await startMesh();

  const runId = await mesh.given.run({ tasks: [{ key: "a", timeouts: { scheduleToStart: "100ms" } }] });
  const run = await mesh.ended(runId);

  expect(run).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "SCHEDULE_TO_START_TIMEOUT" } });
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["TIMED_OUT"]);
  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "TASK_DEAD a", "RUN_FAILED"]);
});

test("D-1 schedule-to-start applies only before the first start: a task that failed waits as long as it must", async () => {
  await using mesh = await startMesh();
  const retry = { initialInterval: "1ms", jitter: 0 };
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry, timeouts: { scheduleToStart: "1m" } }] });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await worker.begin(task);
  await worker.fail(task);
  const age = () => mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - interval '1 h' RETURNING task_id", []);
  await expect.poll(age).toHaveLength(1);

  const overdue = await mesh.given.run({ tasks: [{ key: "b", timeouts: { scheduleToStart: "1ms" } }] });
  await mesh.ended(overdue);
  const keys = await worker.drain();

  expect(keys).toEqual(["a"]);
  expect(await stateOf(mesh, runId)).toBe(Run_State.SUCCEEDED);
});

test("D-1 schedule-to-start counts through leases that were given back or lost before a start", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", timeouts: { scheduleToStart: "1m" } }] });
  const worker = await mesh.worker();
  await mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - interval '50 s'", []);
  await worker.release(await worker.acquireOne());
  const { taskId } = await worker.acquireOne();
  await mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp() WHERE task_id = $1", [taskId]);
  await worker.lost();
  const waited = () => mesh.db.rows("", "SELECT 1 FROM ready WHERE ready_at < clock_timestamp() - interval '50 s'", []);
  await expect.poll(waited).toHaveLength(1);

  await mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - interval '10 s'", []);
  const run = await mesh.ended(runId);

  expect(run).toMatchObject({ failure: { errorType: "SCHEDULE_TO_START_TIMEOUT" } });
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["RELEASED", "LOST", "TIMED_OUT"]);
});

test("D-1 schedule-to-start ends a lease whose worker renews it and does not start it, and tells the worker", async () => {
  await using mesh = await startMesh();
  const timeouts = { scheduleToStart: "1m" };
  const runId = await mesh.given.run({
    tasks: [
      { key: "idle", timeouts, priority: 1 },
      { key: "busy", timeouts },
    ],
  });
  const worker = await mesh.worker();
  const [idle, busy] = [await worker.acquireOne(), await worker.acquireOne()];
  await worker.begin(busy);
  const wait = () => mesh.db.rows("", "UPDATE lease SET ready_at = ready_at - interval '1 h'", []);
  await wait();

  await worker.renew([idle, busy]);
  const lost = await worker.lost();

  expect(lost.taskId).toBe(idle.taskId);
  expect(await worker.complete(busy)).toBe("RUN_NOT_ACTIVE");
  expect((await mesh.ended(runId)).failure).toMatchObject({
    errorType: "SCHEDULE_TO_START_TIMEOUT",
    taskKey: "idle",
  });
});

test("D-1 a retry of the run begins schedule-to-start anew, whatever had started before", async () => {
  await using mesh = await startMesh();
  const once = { key: "a", retry: ONE_ATTEMPT, timeouts: { scheduleToStart: "1m" } };
  const runId = await mesh.given.run({ tasks: [once] });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await worker.begin(task);
  await worker.fail(task);
  await mesh.ended(runId);

  await mesh.runs.retryRun({ runId });
  await mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - interval '1 h'", []);
  const run = await mesh.ended(runId);

  expect(run.failure).toMatchObject({ errorType: "SCHEDULE_TO_START_TIMEOUT" });
});

test("start-to-close ends an attempt as TIMED_OUT from its start on, and the task is tried again", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [{ key: "a", retry: { initialInterval: "1ms", maxAttempts: 2 }, timeouts: { startToClose: "200ms" } }],
  });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  await worker.begin(first);

  const second = await worker.acquireOne();
  const late = await worker.complete(first);
  await worker.begin(second);
  const run = await mesh.ended(runId);

  expect(second).toMatchObject({ key: "a", attempt: 2 });
  expect(second.fence).toBeGreaterThan(first.fence);
  expect(late).toBe("FENCE_STALE");
  expect(run).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "START_TO_CLOSE_TIMEOUT" } });
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["TIMED_OUT", "TIMED_OUT"]);
});

test("T-2 without a heartbeat time-out progress is kept, and nothing times out", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", timeouts: { heartbeat: "0" } }] });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await worker.begin(task);

  await worker.renew([{ ...startedLease(task), progressJson: Buffer.from("41") }]);
  const { task: shown } = await mesh.tasks.getTask({ runId, key: "a" });

  expect(Buffer.from(shown!.lease!.progressJson).toString()).toBe("41");
  const [lease] = await mesh.db.rows<{ close_by: null; beat_by: null }>("", "SELECT close_by, beat_by FROM lease", []);
  expect(lease).toEqual({ close_by: null, beat_by: null });
  expect(await worker.complete(task)).toBe("accepted");
});

test("a handler that tells no progress within heartbeat has timed out, and its last progress reaches the next", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [{ key: "a", retry: { initialInterval: "1ms" }, timeouts: { heartbeat: "600ms" } }],
  });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  await worker.begin(first);
  await worker.renew([{ ...startedLease(first), progressJson: Buffer.from('"half"') }]);

  const second = await worker.acquireOne();

  expect(Buffer.from(second.progressJson).toString()).toBe('"half"');
  const [timedOut] = await listAttempts(mesh, runId);
  expect(timedOut).toMatchObject({ outcome: AttemptOutcome.TIMED_OUT, error: { type: "HEARTBEAT_TIMEOUT" } });
  expect(await worker.complete(second)).toBe("accepted");
});

test("a deadline ends the run TIMED_OUT, cancels its tasks, and accepts nothing more", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    deadline: "400ms",
    tasks: [{ key: "a" }, { key: "b" }, { key: "c", dependsOn: ["a"] }],
  });
  const worker = await mesh.worker();
  const [task] = await worker.acquire(1);

  const run = await mesh.ended(runId);

  expect(run).toMatchObject({ state: Run_State.TIMED_OUT, tasks: { open: 0, cancelled: 3 } });
  expect(await worker.complete(task!)).toBe("RUN_NOT_ACTIVE");
  expect(await worker.acquire(5)).toEqual([]);
  expect(await tellEvents(mesh, runId)).toEqual(["RUN_CREATED", "RUN_TIMED_OUT"]);
});

test("a deadline runs on during a pause, and a retry of the timed-out run gets a new one", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ deadline: "500ms" });
  await mesh.runs.pauseRun({ runId });
  const timedOut = await mesh.ended(runId);

  const { run } = await mesh.runs.retryRun({ runId });
  const again = await mesh.ended(runId);

  expect(timedOut.state).toBe(Run_State.TIMED_OUT);
  expect(run).toMatchObject({ state: Run_State.RUNNING, tasks: { open: 1, cancelled: 0 } });
  expect(again.state).toBe(Run_State.TIMED_OUT);
  expect(await tellEvents(mesh, runId)).toEqual([
    "RUN_CREATED",
    "RUN_PAUSED",
    "RUN_TIMED_OUT",
    "RUN_RETRIED",
    "RUN_TIMED_OUT",
  ]);
});

test("on_failure stop cancels what has not started, aborts what runs, and runs compensation to its end", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [
      { key: "a", priority: 2, retry: ONE_ATTEMPT },
      { key: "beside", priority: 1 },
      { key: "idle" },
      { key: "next", dependsOn: ["a"] },
      { key: "undo", dependsOn: ["a"], when: When.ANY_FAILED },
      { key: "tell", dependsOn: ["undo"], when: When.ALL_DONE },
    ],
  });
  const worker = await mesh.worker();
  const [a, beside] = await worker.acquire(2);
  await worker.begin(a!, beside!);

  const failed = await worker.fail(a!, NEVER_RETRIED);
  const lost = await worker.lost();
  const late = await worker.complete(beside!);
  const keys = await worker.drain();

  expect(failed).toBe("accepted");
  expect(lost.fence).toBe(beside!.fence);
  expect(late).toBe("FENCE_STALE");
  expect(keys).toEqual(["undo", "tell"]);
  expect(await taskStates(mesh, runId)).toEqual({
    a: "DEAD",
    beside: "CANCELLED",
    idle: "CANCELLED",
    next: "CANCELLED",
    undo: "SUCCEEDED",
    tell: "SUCCEEDED",
  });
  expect(await mesh.ended(runId)).toMatchObject({ state: Run_State.FAILED, failure: { taskKey: "a" } });
  await listEvents(mesh, runId);
});

test("on_failure finish skips only what needs the dead task, and allow_failure lets the run succeed", async () => {
  await using mesh = await startMesh();
  const tasks = (allowFailure: boolean) => [
    { key: "a", priority: 1, retry: ONE_ATTEMPT, allowFailure },
    { key: "next", dependsOn: ["a"] },
    { key: "other" },
  ];
  const worker = await mesh.worker();
  const end = async (allowFailure: boolean) => {
    const runId = await mesh.given.run({ onFailure: OnFailure.FINISH, tasks: tasks(allowFailure) });
    await worker.fail(await worker.acquireOne());
    await worker.drain();
    return { run: await mesh.ended(runId), states: await taskStates(mesh, runId) };
  };

  const strict = await end(false);
  const lenient = await end(true);

  expect(strict.states).toEqual({ a: "DEAD", next: "SKIPPED", other: "SUCCEEDED" });
  expect(strict.run.state).toBe(Run_State.FAILED);
  expect(lenient.states).toEqual({ a: "DEAD", next: "SUCCEEDED", other: "SUCCEEDED" });
  expect(lenient.run.state).toBe(Run_State.SUCCEEDED);
});
