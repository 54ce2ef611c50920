import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { ordinalOf } from "@runmesh/domain/ids";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const limited = (key: string, limit: number, tasks = 1) => ({
  tasks: Array.from({ length: tasks }, () => ({ concurrency: { key, limit } })),
});

const held = (mesh: TestMesh) =>
  mesh.db.rows<{ task_id: bigint; reason: number }>("", "SELECT task_id, reason FROM held ORDER BY task_id", []);

const slots = (mesh: TestMesh) =>
  mesh.db.rows<{ key: string; count: number }>("", "SELECT key, count(*)::int AS count FROM slot GROUP BY key", []);

test("a concurrency key lets no more tasks be leased than its limit, and the next in as one ends", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  for (let i = 0; i < 5; i++) await mesh.given.run(limited("db", 2));

  const first = await worker.acquire(10);
  const nothing = await worker.acquire(10);
  await worker.complete(first[0]!);
  const next = await worker.acquire(10);

  expect(first).toHaveLength(2);
  expect(nothing).toEqual([]);
  expect(next).toHaveLength(1);
  expect(await slots(mesh)).toEqual([{ key: "k:db", count: 2 }]);
  expect(await held(mesh)).toHaveLength(2);
  await worker.complete(first[1]!);
  await worker.complete(next[0]!);
  expect(await worker.drain()).toHaveLength(2);
  expect(await slots(mesh)).toEqual([]);
});

test("max_parallel limits the tasks of one run, not those of another", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const definition = { maxParallel: 3, tasks: Array.from({ length: 8 }, () => ({})) };
  await mesh.given.run(definition);
  await mesh.given.run(definition);

  const first = await worker.acquire(100);
  for (const task of first) await worker.complete(task);
  const second = await worker.acquire(100);

  expect(first).toHaveLength(6);
  expect(second).toHaveLength(6);
  for (const task of second) await worker.complete(task);
  expect(await worker.drain()).toHaveLength(4);
  expect(await slots(mesh)).toEqual([]);
});

test("a failed task gives its slot to the next while it waits for its retry, and gets one back", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const retry = { initialInterval: "50ms", jitter: 0 };
  const failing = await mesh.given.run({ tasks: [{ concurrency: { key: "k", limit: 1 }, retry }] });
  const other = await mesh.given.run({ tasks: [{ concurrency: { key: "k", limit: 1 } }] });

  const first = await worker.acquireOne();
  await worker.fail(first);
  const second = await worker.acquireOne();
  await worker.complete(second);
  const again = await worker.acquireOne();
  await worker.complete(again);

  expect([first.runId, second.runId, again.runId]).toEqual([failing, other, failing]);
  expect(again.attempt).toBe(2);
  expect(await slots(mesh)).toEqual([]);
});

test("a cancelled run gives its slots to who waits for them", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const holder = await mesh.given.run(limited("k", 1));
  const waiting = await mesh.given.run(limited("k", 1));
  await worker.acquireOne();

  await mesh.runs.cancelRun({ runId: holder });
  const next = await worker.acquireOne();

  expect(next.runId).toBe(waiting);
  await worker.complete(next);
});

test("a paused run's ready task gives its slot away, and takes one again after the resume", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const paused = await mesh.given.run(limited("k", 1));
  const other = await mesh.given.run(limited("k", 1));

  await mesh.runs.pauseRun({ runId: paused });
  const first = await worker.acquireOne();
  await mesh.runs.resumeRun({ runId: paused });
  const nothing = await worker.acquire(10);
  await worker.complete(first);
  const second = await worker.acquireOne();
  await worker.complete(second);

  expect([first.runId, second.runId]).toEqual([other, paused]);
  expect(nothing).toEqual([]);
});

test("a lease that is lost keeps its slot through recovery", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker({ leaseMs: 1_000 });
  await mesh.given.run(limited("k", 1));
  await mesh.given.run(limited("k", 1));
  const lost = await worker.acquireOne();
  await worker.begin(lost);

  const again = await worker.acquireOne();

  expect(again.taskId).toBe(lost.taskId);
  expect(await slots(mesh)).toEqual([{ key: "k:k", count: 1 }]);
  await worker.complete(again);
  await worker.drain();
});

test("a key that refers to the input gives each value a limit of its own", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const key = '{"$ref":"#/input/customer"}';
  for (const customer of ["a", "a", "b"]) {
    await mesh.given.run({ tasks: [{ concurrency: { key, limit: 1 } }] }, { input: JSON.stringify({ customer }) });
  }

  const first = await worker.acquire(10);

  expect(first).toHaveLength(2);
  for (const task of first) await worker.complete(task);
  expect(await worker.drain()).toHaveLength(1);
});

test("a task of a workflow passes both limits, its key's and its run's", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const definition = { ...limited("k", 3, 6), maxParallel: 2 };
  await mesh.given.run(definition);
  await mesh.given.run(definition);

  let most = 0;
  for (let done = 0; done < 12; ) {
    const tasks = await worker.acquire(100, { waitMs: 2_000 });
    most = Math.max(most, tasks.length);
    for (const task of tasks) await worker.complete(task);
    done += tasks.length;
  }

  expect(most).toBe(3);
  expect(await slots(mesh)).toEqual([]);
});

test("of tasks with two limits that start at once, as many are ready as their key has room for", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ maxParallel: 1, ...limited("db", 2) });
  await mesh.runs.startRuns({ runs: Array.from({ length: 5 }, () => ({ workflow })) });

  const { ready, used } = await mesh.db.one<{ ready: number; used: number }>(
    "",
    `SELECT (SELECT count(*) FROM ready)::int AS ready,
       (SELECT sum(used) FROM slot_count WHERE key LIKE 'r:%')::int AS used`,
    [],
  );

  expect({ ready, used }).toEqual({ ready: 2, used: 2 });
});

test("tasks that their run holds up leave the room of their key to others behind them, however many they are", async () => {
  await using mesh = await startMesh();
  const many = Array.from({ length: 250 }, () => ({ concurrency: { key: "db", limit: 3 } }));
  const first = await mesh.given.run({ maxParallel: 1, tasks: many });
  const second = await mesh.given.run(limited("db", 3));
  const third = await mesh.given.run({ maxParallel: 2, tasks: [...many, {}] });
  const worker = await mesh.worker();

  const tasks = await worker.acquire(10);
  // The one without a key, behind all that have it.
  while (tasks.length < 4) tasks.push(...(await worker.acquire(10, { waitMs: 5_000 })));

  const countOf = (runId: bigint) => tasks.filter((task) => task.runId === runId).length;
  expect([countOf(first), countOf(second), countOf(third)]).toEqual([1, 1, 2]);
  expect(ordinalOf(tasks[3]!.taskId)).toBe(250);
});

test("runs over the limit of their key queue as PENDING and begin in order as others end", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const { name } = await mesh.given.workflow({ concurrency: { key: "one", limit: 1 } });
  const runIds: bigint[] = [];
  for (let i = 0; i < 3; i++) runIds.push((await mesh.runs.startRun({ workflow: name })).runId);
  const states = async () => {
    const runs = await Promise.all(runIds.map((runId) => mesh.runs.getRun({ runId })));
    return runs.map(({ run }) => run!.state);
  };

  const before = await states();
  const order: bigint[] = [];
  for (let i = 0; i < 3; i++) {
    const task = await worker.acquireOne();
    order.push(task.runId);
    await worker.complete(task);
  }

  expect(before).toEqual([2, 1, 1]);
  expect(order).toEqual(runIds);
  expect(await states()).toEqual([4, 4, 4]);
});

test("runs that are due later hold up nobody under the limit of their key, however many there are", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "lane", limit: 1 }, tasks: [{}] });
  const dueTime = timestampFromMs(Date.now() + 3_600_000);
  await mesh.runs.startRuns({ runs: Array.from({ length: 60 }, () => ({ workflow, dueTime })) });

  const first = await mesh.runs.startRun({ workflow });
  const second = await mesh.runs.startRun({ workflow });
  const states = async () =>
    Promise.all([first, second].map(async ({ runId }) => (await mesh.runs.getRun({ runId })).run!.state));
  const before = await states();
  const worker = await mesh.worker();
  await worker.complete((await worker.acquire(5))[0]!);

  expect(before).toEqual([Run_State.RUNNING, Run_State.PENDING]);
  expect(await states()).toEqual([Run_State.SUCCEEDED, Run_State.RUNNING]);
});

test("runs that are due later are noted once, so that no admission looks at them again, and come when they are due", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "lane", limit: 1 }, tasks: [{}] });
  const dueTime = timestampFromMs(Date.now() + 3_600_000);
  const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: 1_000 }, () => ({ workflow, dueTime })) });
  const waiting = async () =>
    (
      await mesh.db.one<{ n: number }>(
        "",
        "SELECT count(*)::int AS n FROM run_slot WHERE NOT active AND due_at IS NULL",
        [],
      )
    ).n;

  await expect.poll(waiting, { timeout: 30_000 }).toBe(0);
  const [first] = results.map((one) => (one.result.case === "started" ? one.result.value.runId : 0n));
  await mesh.db.rows("", "UPDATE run SET due_at = clock_timestamp() WHERE id = $1", [first]);
  await mesh.db.rows("", "UPDATE run_timer SET due_at = clock_timestamp() WHERE run_id = $1", [first]);
  const worker = await mesh.worker();
  const task = await worker.acquireOne();

  expect(task.runId).toBe(first);
  expect(await waiting()).toBe(0);
});

test("a newcomer is refused, or cancels the oldest, as its limit says", async () => {
  await using mesh = await startMesh();
  const refusing = await mesh.given.workflow({ concurrency: { key: "r", limit: 1, onConflict: 3 } });
  const pushing = await mesh.given.workflow({ concurrency: { key: "c", limit: 1, onConflict: 2 } });

  const kept = await mesh.runs.startRun({ workflow: refusing.name, idempotencyKey: "first" });
  const refused = mesh.runs.startRun({ workflow: refusing.name });
  await expect(refused).rejects.toMatchObject({ reason: "OVERLOADED" });
  const again = await mesh.runs.startRun({ workflow: refusing.name, idempotencyKey: "first" });
  const old = await mesh.runs.startRun({ workflow: pushing.name });
  const young = await mesh.runs.startRun({ workflow: pushing.name });

  expect(again.runId).toBe(kept.runId);
  expect((await mesh.runs.getRun({ runId: old.runId })).run!.state).toBe(6);
  expect((await mesh.runs.getRun({ runId: young.runId })).run!.state).toBe(2);
});

test("twelve newcomers at once under a refusing limit of 3 give three runs", async () => {
  await using mesh = await startMesh();
  const { name } = await mesh.given.workflow({ concurrency: { key: "r", limit: 3, onConflict: 3 } });

  const starts = await Promise.allSettled(Array.from({ length: 12 }, () => mesh.runs.startRun({ workflow: name })));

  expect(starts.filter((start) => start.status === "fulfilled")).toHaveLength(3);
});

test("1,000 keys of limit 1 let 1,000 tasks be leased at once", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const tasks = Array.from({ length: 1_000 }, (_, i) => ({ concurrency: { key: `k${i}`, limit: 1 } }));
  await mesh.given.run({ tasks });

  const leased = await worker.acquire(1_000);

  expect(leased).toHaveLength(1_000);
  await worker.drain();
  for (const task of leased.slice(0, 20)) await worker.complete(task);
});
