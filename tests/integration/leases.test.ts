import { AttemptOutcome } from "@runmesh/contracts/event/v1/event_pb";
import { LostLease_Cause } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { type LeaseKey, type MeshWorker, outcomeOf } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";

test("a renewal extends the leases it names and gives the others back, unburnt", async () => {
  await using mesh = await startMesh();
  const runIds = [await mesh.given.run(), await mesh.given.run()];
  const worker = await mesh.worker();
  const leaseOf = await takeAll(worker, 2);
  const [named, forgotten] = [leaseOf(runIds[0]!, "work"), leaseOf(runIds[1]!, "work")];
  await makeOld(mesh);
  const before = await expiries(mesh);

  expect(await worker.renew([named])).toEqual([]);

  const after = await expiries(mesh);
  expect(after.get(named.taskId)!).toBeGreaterThan(before.get(named.taskId)!);
  expect([...after.keys()]).toEqual([named.taskId]);
  const again = await worker.acquireOne();
  expect(again).toMatchObject({ taskId: forgotten.taskId });
  expect(again.fence).toBeGreaterThan(forgotten.fence);
  expect(await worker.complete(forgotten)).toBe("FENCE_STALE");
  expect(await worker.complete(named)).toBe("accepted");
  expect(await worker.complete(again)).toBe("accepted");
  const { attempts } = await mesh.tasks.listAttempts({ runId: runIds[1]! });
  expect(attempts.map(({ outcome, sequence }) => [outcome, sequence])).toEqual([
    [AttemptOutcome.RELEASED, 0n],
    [AttemptOutcome.SUCCEEDED, 2n],
  ]);
});

test("a lease just taken is not given back by a renewal that could not know of it", async () => {
  await using mesh = await startMesh();
  await mesh.given.run();
  const worker = await mesh.worker();
  const task = await worker.acquireOne();

  expect(await worker.renew([], true)).toEqual([]);

  expect(await worker.complete(task)).toBe("accepted");
});

test("a renewal tells which leases are lost, and other sessions' and older fences are", async () => {
  await using mesh = await startMesh();
  for (let i = 0; i < 2; i++) await mesh.given.run();
  const [mine, other] = [await mesh.worker(), await mesh.worker()];
  const task = await mine.acquireOne();
  const foreign = await other.acquireOne();
  const before = await expiries(mesh);

  const lost = await mine.renew([task, foreign, { taskId: 5n, fence: 1n }]);
  const stale = await other.renew([{ taskId: foreign.taskId, fence: foreign.fence - 1n }], true);

  expect(lost.sort()).toEqual([5n, foreign.taskId].sort());
  expect(stale).toEqual([foreign.taskId]);
  expect((await expiries(mesh)).get(foreign.taskId)).toBe(before.get(foreign.taskId));
});

test("a lease that ran out makes its task ready again, ahead of the backlog of its priority", async () => {
  await using mesh = await startMesh();
  const first = await mesh.given.run({ tasks: [{ key: "first" }] });
  await mesh.given.run({ tasks: [{ key: "backlog" }] });
  const [dying, healthy] = [await mesh.worker(), await mesh.worker()];
  const task = await dying.acquireOne();
  await dying.begin(task);
  await mesh.given.run({ tasks: [{ key: "urgent", priority: 1 }] });

  await expire(mesh, task);
  const told = await dying.lost();
  const keys = await healthy.drain();

  expect(told).toMatchObject({ taskId: task.taskId, fence: task.fence });
  expect(keys).toEqual(["urgent", "first", "backlog"]);
  expect(await dying.complete(task)).toMatch(/FENCE_STALE|RUN_NOT_ACTIVE/);
  expect(await outcomes(mesh, first)).toEqual([AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]);
});

test("a lease lost before its handler began burns nothing; a second loss in a row waits the retry delay", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { initialInterval: "1h", maxInterval: "1h" } }] });
  const worker = await mesh.worker();
  const lose = async (isStarted: boolean) => {
    const task = await worker.acquireOne();
    if (isStarted) await worker.begin(task);
    await expire(mesh, task);
    await worker.lost();
  };

  await lose(false);
  await lose(false);
  await lose(true);
  await lose(true);

  const { tasks } = await mesh.tasks.listTasks({ runId });
  expect(tasks[0]).toMatchObject({ attemptCount: 4, state: Task_State.RETRY_WAIT, error: { type: "WORKER_LOST" } });
  expect(await worker.acquire(1)).toEqual([]);
});

test("only a task that may run once is to be started first; told again it is accepted, told of another lease refused", async () => {
  await using mesh = await startMesh();
  const once = { key: "once", retry: { maxAttempts: 1 }, priority: 1 };
  const runId = await mesh.given.run({ tasks: [once, { key: "often", retry: { maxAttempts: 2 } }] });
  const worker = await mesh.worker();
  const other = await mesh.worker();
  const [task, often] = [await worker.acquireOne(), await worker.acquireOne()];
  const key = { taskId: task.taskId, fence: task.fence };
  const start = async (by: MeshWorker, ...tasks: LeaseKey[]) =>
    (await mesh.leases.startTasks({ ...by.session, tasks })).results.map(outcomeOf);

  const told = [
    await start(worker, key, { ...key, fence: key.fence - 1n }),
    await start(worker, key),
    await start(other, key),
  ];
  await expire(mesh, task);
  await worker.lost();

  expect([task.startFirst, often.startFirst]).toEqual([true, false]);
  expect(told).toEqual([["accepted", "FENCE_STALE"], ["accepted"], ["FENCE_STALE"]]);
  expect((await mesh.ended(runId)).failure).toMatchObject({ errorType: "WORKER_LOST", taskKey: "once" });
  expect(await start(worker, key)).toEqual(["RUN_NOT_ACTIVE"]);
});

test("fences rise with every lease, however the one before ended", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { initialInterval: "1ms" } }] });
  const worker = await mesh.worker();
  const leases: LeaseKey[] = [];
  const take = async () => {
    leases.push(await worker.acquireOne());
    return leases.at(-1)!;
  };

  expect(await worker.release(await take())).toBe("accepted");
  expect(await worker.fail(await take())).toBe("accepted");
  await expire(mesh, await take());
  await worker.lost();
  expect(await worker.complete(await take())).toBe("accepted");

  const fences = leases.map((lease) => lease.fence);
  expect(fences).toEqual([...new Set(fences)].sort((a, b) => (a < b ? -1 : 1)));
  const { attempts } = await mesh.tasks.listAttempts({ runId });
  expect(attempts.map((attempt) => [attempt.fence, attempt.number])).toEqual(fences.map((fence, i) => [fence, i + 1]));
  expect(await outcomes(mesh, runId)).toEqual([
    AttemptOutcome.RELEASED,
    AttemptOutcome.FAILED,
    AttemptOutcome.LOST,
    AttemptOutcome.SUCCEEDED,
  ]);
});

test("completing twice answers the same, and the first result stays", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "t" }], output: '{"$ref":"#/tasks/t/output"}' });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();

  const answers = [
    await worker.complete(task, "1"),
    await worker.complete(task, "1"),
    await worker.complete(task, "2"),
  ];

  expect(answers).toEqual(["accepted", "accepted", "accepted"]);
  expect(Buffer.from((await mesh.ended(runId)).outputJson).toString()).toBe("1");
  expect(await outcomes(mesh, runId)).toEqual([AttemptOutcome.SUCCEEDED]);
});

test("what has ended one way cannot be said to have ended another", async () => {
  await using mesh = await startMesh();
  const retry = { initialInterval: "1h" };
  const tasks = [{ key: "a", retry }, { key: "b", retry }, { key: "c", retry }, { key: "open" }];
  const runId = await mesh.given.run({ tasks });
  const worker = await mesh.worker();
  const leaseOf = await takeAll(worker, 3);
  const [succeeded, failed, released] = [leaseOf(runId, "a"), leaseOf(runId, "b"), leaseOf(runId, "c")];
  expect(await worker.complete(succeeded)).toBe("accepted");
  expect(await worker.fail(failed)).toBe("accepted");
  expect(await worker.release(released)).toBe("accepted");

  expect(await worker.fail(succeeded)).toBe("FENCE_STALE");
  expect(await worker.release(succeeded)).toBe("FENCE_STALE");
  expect(await worker.complete(failed)).toBe("FENCE_STALE");
  expect(await worker.complete(released)).toBe("FENCE_STALE");
  expect(await worker.fail(released)).toBe("FENCE_STALE");
});

test("each completion of a call is judged by itself, with its own reason", async () => {
  await using mesh = await startMesh();
  const runIds = [];
  for (let i = 0; i < 4; i++) runIds.push(await mesh.given.run({ tasks: [{ key: "a" }, { key: "b" }] }));
  const [worker, other] = [await mesh.worker(), await mesh.worker()];
  const leaseOf = await takeAll(worker, 7);
  const [good, expired] = [leaseOf(runIds[0]!, "a"), leaseOf(runIds[0]!, "b")];
  const [badJson, tooLarge] = [leaseOf(runIds[1]!, "a"), leaseOf(runIds[1]!, "b")];
  const [cancelled, decoy] = [leaseOf(runIds[2]!, "a"), leaseOf(runIds[3]!, "a")];
  const foreign = await other.acquireOne();
  await mesh.runs.cancelRun({ runId: runIds[2]! });
  await afterReaper(mesh, worker, decoy);
  await expire(mesh, expired);

  const json = (text: string) => ({ outputPayload: { case: "outputJson" as const, value: Buffer.from(text) } });
  const { results } = await mesh.leases.completeTasks({
    ...worker.session,
    tasks: [
      { ...keyOf(good), ...json('{"fine":true}') },
      { ...keyOf(good), fence: good.fence - 1n },
      keyOf(expired),
      keyOf(foreign),
      keyOf(cancelled),
      { ...keyOf(badJson), ...json("{") },
      { ...keyOf(tooLarge), ...json(`"${"x".repeat(256 * 1024)}"`) },
      { taskId: 77n << 20n, fence: 1n },
    ],
  });

  expect(results.map(outcomeOf)).toEqual([
    "accepted",
    "FENCE_STALE",
    "LEASE_EXPIRED",
    "FENCE_STALE",
    "RUN_NOT_ACTIVE",
    "INVALID_PAYLOAD",
    "TOO_LARGE",
    "FENCE_STALE",
  ]);
  expect(results[5]!.error!.violations[0]!.field).toBe("tasks[5].output");
});

test("another tenant's lease and run are as if they were not", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await mesh.db.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'other')", []);
  const giveTo = async (tenantId: number) => {
    for (const [table, id] of [
      ["run", "id"],
      ["task", "id >> 20"],
      ["lease", "task_id >> 20"],
    ]) {
      await mesh.db.rows("", `UPDATE ${table} SET tenant_id = $1 WHERE ${id} = $2`, [tenantId, runId]);
    }
  };

  await giveTo(2);

  expect(await worker.complete(task)).toBe("FENCE_STALE");
  expect(await worker.fail(task)).toBe("FENCE_STALE");
  expect(await worker.release(task)).toBe("FENCE_STALE");
  expect(await worker.renew([keyOf(task)])).toEqual([task.taskId]);
  await expect(mesh.runs.getRun({ runId })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.runs.cancelRun({ runId })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.tasks.getTask({ taskId: task.taskId })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  expect((await mesh.runs.listRuns({})).runs).toEqual([]);
  await giveTo(1);
  expect(await worker.complete(task)).toBe("accepted");
});

test("a cancel is told over the stream at once, and nothing of the run is accepted after it", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });
  const worker = await mesh.worker();
  const task = await worker.acquireOne();
  await worker.begin(task);
  const told = worker.lost();

  const startedAt = performance.now();
  await mesh.runs.cancelRun({ runId });
  expect(await worker.complete(task)).toBe("RUN_NOT_ACTIVE");
  const lost = await told;

  expect(performance.now() - startedAt).toBeLessThan(1_000);
  expect(lost).toMatchObject({ taskId: task.taskId, fence: task.fence });
  expect([LostLease_Cause.RUN_ENDED, LostLease_Cause.RUN_CANCELLED]).toContain(lost.cause);
  expect(await worker.acquire(1)).toEqual([]);
  expect(await outcomes(mesh, runId)).toEqual([AttemptOutcome.CANCELLED]);
});

test("a refused report for an older fence does not make the session forget the newer lease", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();
  const worker = await mesh.worker();
  const old = await worker.acquireOne();
  expect(await worker.release(old)).toBe("accepted");
  const current = await worker.acquireOne();
  expect(await worker.complete(old)).toBe("FENCE_STALE");
  expect(await worker.renew([keyOf(old)], true)).toEqual([old.taskId]);

  await mesh.runs.cancelRun({ runId });

  expect(await worker.lost()).toMatchObject({ taskId: current.taskId, fence: current.fence });
});

/** Takes so many tasks, oldest first, and finds each by its run and key. */
async function takeAll(worker: MeshWorker, max: number): Promise<(runId: bigint, key: string) => LeaseKey> {
  const tasks = await worker.acquire(max);
  return (runId, key) => tasks.find((task) => task.runId === runId && task.key === key)!;
}

const keyOf = ({ taskId, fence }: LeaseKey) => ({ taskId, fence });

/** Makes a lease run out now, as if its time had passed. */
async function expire(mesh: TestMesh, { taskId }: LeaseKey): Promise<void> {
  await mesh.db.rows("", "UPDATE lease SET expires_at = clock_timestamp() WHERE task_id = $1", [taskId]);
}

/** Returns right after the reaper went round, so that it is not back for half a second. */
async function afterReaper(mesh: TestMesh, worker: MeshWorker, decoy: LeaseKey): Promise<void> {
  await expire(mesh, decoy);
  for (let lost = await worker.lost(); lost.taskId !== decoy.taskId; lost = await worker.lost());
}

async function makeOld(mesh: TestMesh): Promise<void> {
  await mesh.db.rows("", "UPDATE lease SET leased_at = leased_at - interval '1 minute'", []);
}

async function expiries(mesh: TestMesh): Promise<Map<bigint, number>> {
  const rows = await mesh.db.rows<{ task_id: bigint; at: number }>(
    "",
    "SELECT task_id, extract(epoch FROM expires_at)::float8 AS at FROM lease ORDER BY task_id",
    [],
  );
  return new Map(rows.map((row) => [row.task_id, row.at]));
}

async function outcomes(mesh: TestMesh, runId: bigint): Promise<AttemptOutcome[]> {
  return (await mesh.tasks.listAttempts({ runId })).attempts.map((attempt) => attempt.outcome);
}
