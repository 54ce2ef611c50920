import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { AttemptOutcome } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { LogLine_Level, Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { outcomeOf } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";

test("one exchange reports completions, failures and releases, and brings the next tasks", async () => {
  await using mesh = await startMesh();
  for (let i = 0; i < 4; i++) await mesh.given.run();
  const worker = await mesh.worker();
  const [a, b, c] = await worker.acquire(3);

  const answer = await mesh.leases.exchange({
    ...worker.session,
    completed: [keyOf(a!), { taskId: a!.taskId, fence: 1_000n }],
    failed: [{ ...keyOf(b!), error: { type: "Broken", message: "", retryable: false } }],
    released: [keyOf(c!)],
    max: 10,
    waitMs: 60_000,
  });

  expect(answer.completed.map(outcomeOf)).toEqual(["accepted", "RUN_NOT_ACTIVE"]);
  expect(answer.failed.map(outcomeOf)).toEqual(["accepted"]);
  expect(answer.released.map(outcomeOf)).toEqual(["accepted"]);
  expect(answer.tasks.map((task) => task.taskId)).toContain(c!.taskId);
  expect(answer.tasks).toHaveLength(2);
});

test("an exchange that reports does not wait for work, and one that asks for none gets none", async () => {
  await using mesh = await startMesh();
  for (let i = 0; i < 2; i++) await mesh.given.run();
  const worker = await mesh.worker();
  const [a, b] = await worker.acquire(2);

  const startedAt = performance.now();
  const empty = await mesh.leases.exchange({ ...worker.session, completed: [keyOf(a!)], max: 5, waitMs: 60_000 });
  await mesh.given.run();
  const none = await mesh.leases.exchange({ ...worker.session, completed: [keyOf(b!)], waitMs: 60_000 });

  expect(performance.now() - startedAt).toBeLessThan(5_000);
  expect([empty.tasks, none.tasks]).toEqual([[], []]);
});

test("the last progress of an attempt is handed to the next, and shown", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { initialInterval: "1ms" } }] });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  const told = (text: string) => ({ ...keyOf(first), started: true, progressJson: Buffer.from(text) });

  await worker.renew([told('{"row":1}')]);
  await worker.renew([told('{"row":9007199254740993}')]);
  const { task: running } = await mesh.tasks.getTask({ runId, key: "t" });
  expect(await worker.fail(first)).toBe("accepted");
  const second = await worker.acquireOne();

  expect(textOf(running!.lease!.progressJson)).toBe('{"row":9007199254740993}');
  expect(running!.state).toBe(Task_State.LEASED);
  expect(textOf(second.progressJson)).toBe('{"row":9007199254740993}');
  expect(second.attempt).toBe(2);
  const { attempts } = await mesh.tasks.listAttempts({ runId });
  expect(textOf(attempts[0]!.progressJson)).toBe('{"row":9007199254740993}');
  const tooLong = worker.renew([{ ...keyOf(second), progressJson: Buffer.from(`"${"x".repeat(64 * 1024)}"`) }]);
  await expect(tooLong).rejects.toMatchObject({ reason: "TOO_LARGE", field: "leases[0].progress_json" });
  expect(await worker.complete(second)).toBe("accepted");
});

test("log lines are kept in order, by attempt, whatever call they came with", async () => {
  await using mesh = await startMesh();
  await mesh.given.run({ tasks: [{ key: "t", retry: { initialInterval: "1ms" } }] });
  const worker = await mesh.worker();
  const line = (message: string, level: LogLine_Level = LogLine_Level.INFO) => ({ level, message });

  const first = await worker.acquireOne();
  await worker.renew([{ ...keyOf(first), log: [line("one"), line("two", LogLine_Level.ERROR)] }]);
  expect(await worker.fail(first, undefined, { log: [line("three")] })).toBe("accepted");
  const second = await worker.acquireOne();
  await mesh.leases.completeTasks({ ...worker.session, tasks: [{ ...keyOf(second), log: [line("x".repeat(9_000))] }] });
  await mesh.leases.completeTasks({ ...worker.session, tasks: [{ ...keyOf(second), log: [line("too late")] }] });

  const { taskId } = first;
  const { lines } = await mesh.tasks.listLogs({ taskId });
  expect(lines.map(({ attempt, level, message }) => [attempt, level, message.slice(0, 5)])).toEqual([
    [1, 2, "one"],
    [1, 4, "two"],
    [1, 2, "three"],
    [2, 2, "xxxxx"],
  ]);
  expect(Buffer.byteLength(lines[3]!.message)).toBeLessThanOrEqual(8 * 1024);
  const paged = await mesh.tasks.listLogs({ taskId, pageSize: 3 });
  const rest = await mesh.tasks.listLogs({ taskId, pageSize: 3, pageToken: paged.nextPageToken });
  expect([...paged.lines, ...rest.lines]).toEqual(lines);
  const ofSecond = await mesh.tasks.listLogs({ taskId, attempt: 2 });
  expect(ofSecond.lines).toHaveLength(1);
});

test("params that do not fit into the answer are fetched under the lease", async () => {
  await using mesh = await startMesh();
  const big = `"${"x".repeat(250 * 1024)}"`;
  const tasks = Array.from({ length: 20 }, (_, i) => ({ key: `t${i}`, params: `[{"$ref":"#/input"},${i}]` }));
  await mesh.given.run({ tasks }, { input: big });
  const worker = await mesh.worker();

  const leased = await worker.acquire(20);

  const deferred = leased.filter((task) => task.paramsDeferred);
  const here = leased.filter((task) => !task.paramsDeferred);
  expect(leased).toHaveLength(20);
  expect(deferred.length).toBeGreaterThan(0);
  expect(here.reduce((sum, task) => sum + task.paramsJson.length, 0)).toBeLessThanOrEqual(4 * 1024 * 1024);
  for (const task of here) expect(textOf(task.paramsJson)).toBe(`[${big},${task.key.slice(1)}]`);
  for (const task of deferred) {
    const { paramsJson } = await mesh.leases.getTaskParams({ ...worker.session, ...keyOf(task) });
    expect(textOf(paramsJson)).toBe(`[${big},${task.key.slice(1)}]`);
  }
  const { taskId, fence } = deferred[0]!;
  const stale = mesh.leases.getTaskParams({ ...worker.session, taskId, fence: fence - 1n });
  await expect(stale).rejects.toMatchObject({ reason: "FENCE_STALE" });
});

test("a failed attempt is tried again after its delay, and DEAD at the last; the run tells why", async () => {
  await using mesh = await startMesh();
  const retry = { maxAttempts: 3, initialInterval: "20ms", multiplier: 2, jitter: 0 };
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry }] });
  const worker = await mesh.worker();
  const attempt = async () => {
    const task = await worker.acquireOne();
    expect(await worker.fail(task, { type: "Declined", message: `no ${task.attempt}`, retryable: true })).toBe(
      "accepted",
    );
  };

  for (let i = 0; i < 3; i++) await attempt();
  const run = await mesh.ended(runId);

  expect(run).toMatchObject({
    state: Run_State.FAILED,
    tasks: { dead: 1 },
    failure: { taskKey: "t", errorType: "Declined", message: "no 3" },
  });
  const { attempts } = await mesh.tasks.listAttempts({ runId });
  const at = (time: { seconds: bigint; nanos: number } | undefined) =>
    Number(time!.seconds) * 1_000 + time!.nanos / 1e6;
  expect(at(attempts[1]!.leaseTime) - at(attempts[0]!.endTime)).toBeGreaterThanOrEqual(19);
  expect(at(attempts[2]!.leaseTime) - at(attempts[1]!.endTime)).toBeGreaterThanOrEqual(39);
  const { events } = await mesh.runs.listEvents({ runId });
  expect(events.map(({ type, attempt: number }) => [type, number])).toEqual([
    [1, 0],
    [21, 1],
    [21, 2],
    [23, 3],
    [6, 0],
  ]);
});

test("retry-after is waited for, where the policy's own delay would be shorter", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { initialInterval: "1ms" } }] });
  const worker = await mesh.worker();

  const first = await worker.acquireOne();
  const failedAt = performance.now();
  expect(await worker.fail(first, undefined, { retryAfter: durationFromMs(600) })).toBe("accepted");
  const { tasks } = await mesh.tasks.listTasks({ runId });
  const second = await worker.acquireOne();

  expect(tasks[0]).toMatchObject({ state: Task_State.RETRY_WAIT });
  expect(tasks[0]!.dueTime).toBeDefined();
  expect(performance.now() - failedAt).toBeGreaterThanOrEqual(590);
  expect(await worker.complete(second)).toBe("accepted");
});

test.each([
  ["the worker says that it cannot be tried again", { type: "Any", retryable: false }],
  ["the policy lists its type", { type: "CardDeclined", retryable: true }],
])("an error is not tried again where %s", async (_why, error) => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { nonRetryable: ["CardDeclined"] } }] });
  const worker = await mesh.worker();

  expect(await worker.fail(await worker.acquireOne(), { ...error, message: "x" })).toBe("accepted");

  expect(await mesh.ended(runId)).toMatchObject({ state: Run_State.FAILED, failure: { errorType: error.type } });
});

test.each([
  ["startToClose", "START_TO_CLOSE"],
  ["heartbeat", "HEARTBEAT"],
])("a handler over its %s is timed out and tried again", async (timeout, type) => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [{ key: "t", timeouts: { [timeout]: "100ms" }, retry: { initialInterval: "1ms" } }],
  });
  const worker = await mesh.worker();
  const first = await worker.acquireOne();
  await worker.begin(first);

  expect(await worker.lost()).toMatchObject({ taskId: first.taskId, fence: first.fence });
  const second = await worker.acquireOne();
  expect(await worker.complete(second)).toBe("accepted");

  const { attempts } = await mesh.tasks.listAttempts({ runId });
  expect(attempts.map(({ outcome }) => outcome)).toEqual([AttemptOutcome.TIMED_OUT, AttemptOutcome.SUCCEEDED]);
  expect(attempts[0]!.error!.type).toContain(type);
});

const keyOf = ({ taskId, fence }: { taskId: bigint; fence: bigint }) => ({ taskId, fence });
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");
