import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { NotRunning_NoWorker_Missing as Missing, type NotRunning } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const HOUR = 3_600_000;

async function whyTask(mesh: TestMesh, runId: bigint, key = "work"): Promise<NotRunning["why"]> {
  const { task } = await mesh.tasks.getTask({ runId, key });
  return task!.notRunning?.why ?? { case: undefined };
}

async function whyRun(mesh: TestMesh, runId: bigint): Promise<{ why: NotRunning["why"]; taskKey: string }> {
  const { run } = await mesh.runs.getRun({ runId });
  return { why: run!.notRunning?.why ?? { case: undefined }, taskKey: run!.notRunning?.taskKey ?? "" };
}

/** A time among the facts, in whole milliseconds. */
function timeOf(why: NotRunning["why"], field: "sinceTime" | "untilTime"): number {
  const time = (why.value as { [field]?: Timestamp } | undefined)?.[field];
  return Number(time!.seconds) * 1_000 + Math.floor(time!.nanos / 1_000_000);
}

const taskIdOf = async (mesh: TestMesh, runId: bigint, key = "work") =>
  (await mesh.tasks.getTask({ runId, key })).task!.id;

test("a blocked task names the dependencies that have not ended, and counts them", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const tasks = [
    { key: "a", priority: 1 },
    { key: "b" },
    { key: "c", dependsOn: ["a", "b"] },
    ...Array.from({ length: 25 }, (_, i) => ({ key: `d${i}`, handler: "later" })),
  ];
  const last = { key: "last", dependsOn: tasks.map((task) => task.key) };
  const runId = await mesh.given.run({ tasks: [...tasks, last] });

  const before = await whyTask(mesh, runId, "c");
  await worker.complete(await worker.acquireOne());
  const after = await whyTask(mesh, runId, "c");
  const many = await whyTask(mesh, runId, "last");
  const page = await mesh.tasks.listTasks({ runId });

  expect(before).toMatchObject({ case: "waitsForTasks", value: { taskKeys: ["a", "b"], count: 2 } });
  expect(after).toMatchObject({ case: "waitsForTasks", value: { taskKeys: ["b"], count: 1 } });
  expect(many).toMatchObject({ case: "waitsForTasks", value: { count: 27 } });
  expect((many.value as { taskKeys: string[] }).taskKeys).toHaveLength(20);
  expect(page.tasks.map((task) => task.notRunning?.why.case)).toEqual([
    undefined,
    "claimable",
    "waitsForTasks",
    ...Array(25).fill("noWorker"),
    "waitsForTasks",
  ]);
});

test("a run that begins later waits for its time, and so do its first tasks", async () => {
  await using mesh = await startMesh();
  const due = Date.now() + HOUR;
  const runId = await mesh.given.run({}, { dueTime: timestampFromMs(due) });

  const run = await whyRun(mesh, runId);
  const task = await whyTask(mesh, runId);

  expect(run).toMatchObject({ why: { case: "waitsForTime" }, taskKey: "" });
  expect(task.case).toBe("waitsForTime");
  expect([timeOf(run.why, "untilTime"), timeOf(task, "untilTime")]).toEqual([due, due]);
});

test("a task that failed waits for the time of its retry", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ retry: { initialInterval: "1h", maxInterval: "1h", jitter: 0 } }] });

  await worker.fail(await worker.acquireOne());
  const { task } = await mesh.tasks.getTask({ runId, key: "work" });
  const run = await whyRun(mesh, runId);

  expect(task!.notRunning!.why).toEqual({
    case: "waitsForTime",
    value: expect.objectContaining({ untilTime: task!.dueTime }),
  });
  expect(run).toMatchObject({ why: { case: "waitsForTime" }, taskKey: "work" });
});

test("a task over its concurrency key names the key and who holds it", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const definition = { tasks: [{ concurrency: { key: "db", limit: 2 } }] };
  const holders = [await mesh.given.run(definition), await mesh.given.run(definition)];
  const runId = await mesh.given.run(definition);
  await worker.acquire(10);

  const task = await whyTask(mesh, runId);
  const run = await whyRun(mesh, runId);

  const taskIds = await Promise.all(holders.map((holder) => taskIdOf(mesh, holder)));
  const value = {
    key: "db",
    limit: 2,
    inUse: 2,
    holders: holders.map((holder, i) => ({ runId: holder, taskId: taskIds[i]! })),
  };
  expect(task).toMatchObject({ case: "waitsForConcurrencyKey", value });
  expect(run).toMatchObject({ why: { case: "waitsForConcurrencyKey", value }, taskKey: "work" });
  expect((await whyRun(mesh, holders[0]!)).why.case).toBeUndefined();
});

test("a task over max_parallel says so while others of its run are leased", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ maxParallel: 2, tasks: [{}, {}, {}] });
  const leased = await worker.acquire(10);

  const { tasks } = await mesh.tasks.listTasks({ runId });

  const held = tasks.filter((task) => task.lease === undefined);
  expect(leased).toHaveLength(2);
  expect(held.map((task) => task.notRunning!.why)).toMatchObject([
    { case: "waitsForMaxParallel", value: { limit: 2, inUse: 2 } },
  ]);
  expect((await whyRun(mesh, runId)).why.case).toBeUndefined();
});

test("a suspended task says until what it waits", async () => {
  await using mesh = await startMesh();
  await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ handler: "nobody" }] });
  const until = new Date(Date.now() + HOUR);
  const suspend = (waitsFor: number, name: string | null, child: bigint | null, wakeAt: Date | null) =>
    mesh.db.rows(
      "",
      `WITH was AS (DELETE FROM ready RETURNING tenant_id, task_id, route_id, rank, attempt, failures, losses)
       INSERT INTO suspended (tenant_id, task_id, route_id, rank, attempt, failures, losses, waits_for, name,
         child_run_id, wake_at)
       SELECT tenant_id, task_id, route_id, rank, attempt, failures, losses, $1, $2, $3, $4 FROM was`,
      [waitsFor, name, child, wakeAt],
    );
  const wait = (waitsFor: number, name: string | null, child: bigint | null, wakeAt: Date | null) =>
    mesh.db.rows("", "UPDATE suspended SET waits_for = $1, name = $2, child_run_id = $3, wake_at = $4", [
      waitsFor,
      name,
      child,
      wakeAt,
    ]);

  await suspend(1, null, null, until);
  const sleeping = await whyTask(mesh, runId);
  await wait(2, "paid", null, null);
  const signal = await whyTask(mesh, runId);
  const run = await whyRun(mesh, runId);
  await wait(3, null, runId, null);
  const child = await whyTask(mesh, runId);

  expect(sleeping).toMatchObject({ case: "suspended", value: { signal: "", childRunId: 0n } });
  expect(timeOf(sleeping, "untilTime")).toBe(until.getTime());
  expect(signal).toMatchObject({ case: "suspended", value: { signal: "paid", childRunId: 0n } });
  expect((signal.value as { untilTime?: unknown }).untilTime).toBeUndefined();
  expect(child).toMatchObject({ case: "suspended", value: { signal: "", childRunId: runId } });
  expect(run).toMatchObject({ why: { case: "suspended", value: { signal: "paid" } }, taskKey: "work" });
  await mesh.runs.cancelRun({ runId });
});

test("a paused run and what is held of it say since when", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });

  await mesh.runs.pauseRun({ runId });
  const run = await whyRun(mesh, runId);
  const { events } = await mesh.runs.listEvents({ runId });

  const task = await whyTask(mesh, runId, "a");
  const { seconds, nanos } = events.at(-1)!.time!;
  const pausedAt = Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000);
  expect([run.why.case, task.case]).toEqual(["paused", "paused"]);
  expect([timeOf(run.why, "sinceTime"), timeOf(task, "sinceTime")]).toEqual([pausedAt, pausedAt]);
  expect((await whyTask(mesh, runId, "b")).case).toBe("waitsForTasks");
});

test("without a worker it tells whether the handler, the queue or a capability is missing, and never busy", async () => {
  await using mesh = await startMesh();
  const tasks = [
    { key: "handler", handler: "unknown" },
    { key: "queue", queue: "night" },
    { key: "capabilities", requires: ["gpu", "region=eu", "ssd"] },
  ];
  const runId = await mesh.given.run({ tasks });
  // All its slots are used, which must not be taken for a worker that could.
  const busy = await mesh.worker({ slots: 1, capabilities: ["ssd"] });
  const other = await mesh.given.run({});
  const lease = await busy.acquireOne();

  const [handler, queue, capabilities] = (await mesh.tasks.listTasks({ runId })).tasks.map((task) => task);

  expect(lease.runId).toBe(other);
  expect(handler!.notRunning!.why).toMatchObject({
    case: "noWorker",
    value: { missing: Missing.HANDLER, handler: "unknown", capabilities: [], sinceTime: handler!.dueTime },
  });
  expect(queue!.notRunning!.why).toMatchObject({
    case: "noWorker",
    value: { missing: Missing.QUEUE, handler: "work", queue: "night", capabilities: [] },
  });
  expect(capabilities!.notRunning!.why).toMatchObject({
    case: "noWorker",
    value: { missing: Missing.CAPABILITIES, capabilities: ["gpu", "region=eu"] },
  });
  expect(await whyRun(mesh, runId)).toMatchObject({ why: { case: "noWorker" }, taskKey: "handler" });
});

test("a worker that is gone is missed since it was seen last", async () => {
  await using mesh = await startMesh();
  await mesh.worker();
  const runId = await mesh.given.run();
  const seen = new Date(Date.now() + HOUR);

  const there = await whyTask(mesh, runId);
  await mesh.db.rows("", "UPDATE session SET seen_at = $1, closed_at = clock_timestamp()", [seen]);
  const gone = await whyTask(mesh, runId);

  expect(there).toMatchObject({ case: "claimable", value: { workers: 1, slots: 10, slotsUsed: 0 } });
  expect(gone).toMatchObject({ case: "noWorker", value: { missing: Missing.HANDLER } });
  expect(timeOf(gone, "sinceTime")).toBe(seen.getTime());
});

test("a worker that was not seen for a lease does not count", async () => {
  await using mesh = await startMesh();
  await mesh.worker();
  const runId = await mesh.given.run();

  await mesh.db.rows("", "UPDATE session SET seen_at = clock_timestamp() - interval '2 minutes'", []);

  expect((await whyTask(mesh, runId)).case).toBe("noWorker");
});

test("workers that have the handler are busy when every slot is used, and say how many", async () => {
  await using mesh = await startMesh();
  const [first, second] = [await mesh.worker({ slots: 2 }), await mesh.worker({ slots: 1 })];
  await mesh.worker({ handlers: ["other"], slots: 50 });
  for (let i = 0; i < 3; i++) await mesh.given.run();
  const runId = await mesh.given.run({ tasks: [{ priority: -1 }] });

  await first.acquire(2);
  const free = await whyTask(mesh, runId);
  await second.acquire(1);
  const busy = await whyTask(mesh, runId);
  const run = await whyRun(mesh, runId);

  expect(free).toMatchObject({ case: "claimable", value: { workers: 2, slots: 3, slotsUsed: 2 } });
  expect(busy).toMatchObject({ case: "workersBusy", value: { workers: 2, slots: 3, slotsUsed: 3 } });
  expect(run).toMatchObject({ why: { case: "workersBusy", value: { slots: 3, slotsUsed: 3 } }, taskKey: "work" });
});

test("a run that waits for its limit says who has it and how many are before it", async () => {
  await using mesh = await startMesh();
  const definition = { name: "one-at-a-time", concurrency: { key: "account-7", limit: 1 } };
  const [holder, , third] = [
    await mesh.given.run(definition),
    await mesh.given.run(definition),
    await mesh.given.run(definition),
  ];

  const run = await whyRun(mesh, third!);
  const task = await whyTask(mesh, third!);

  const why = {
    case: "waitsForRunLimit",
    value: { key: "account-7", limit: 1, inUse: 1, runIds: [holder], position: 2 },
  };
  expect(run).toMatchObject({ why, taskKey: "" });
  expect(task).toMatchObject(why);
});

test("a run's place before its limit counts those that are due, and none that begins later", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "lane", limit: 1 } });
  const dueTime = timestampFromMs(Date.now() + 3_600_000);
  await mesh.runs.startRun({ workflow });
  await mesh.runs.startRuns({ runs: Array.from({ length: 100 }, () => ({ workflow, dueTime })) });

  const { runId: next } = await mesh.runs.startRun({ workflow });
  const { runId: last } = await mesh.runs.startRun({ workflow });

  expect(await whyRun(mesh, next)).toMatchObject({ why: { case: "waitsForRunLimit", value: { position: 1 } } });
  expect(await whyRun(mesh, last)).toMatchObject({ why: { case: "waitsForRunLimit", value: { position: 2 } } });
});

test("what runs, and what has ended, has no reason", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const lease = await worker.acquireOne();

  const running = [(await whyRun(mesh, runId)).why.case, (await whyTask(mesh, runId)).case];
  await worker.complete(lease);
  await mesh.ended(runId);
  const ended = [(await whyRun(mesh, runId)).why.case, (await whyTask(mesh, runId)).case];

  expect([...running, ...ended]).toEqual([undefined, undefined, undefined, undefined]);
});
