import { randomInt } from "node:crypto";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { digestOf } from "@runmesh/platform/digest";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";
import { connectTo, startReplicas, stumble } from "./cluster.ts";
import { tellEvents } from "./history.ts";

const TWELVE = Array.from({ length: 12 });
const TASKS = 10_000;
const INTERLEAVINGS = 1_000;
const AT_ONCE = 50;

const HOLD_KEY = `
  INSERT INTO start_key (tenant_id, workflow_id, digest, run_id, body_hash)
  SELECT tenant_id, id, $2::uuid, 0, $2::uuid FROM workflow WHERE tenant_id = 1 AND name = $1`;
const LIST_WAITING = `
  SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;

const idsOf = (rows: readonly { run_id: bigint }[]) => rows.map((row) => row.run_id);

async function startMany(mesh: TestMesh, workflow: string, count: number): Promise<bigint[]> {
  const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: count }, () => ({ workflow })) });
  return results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));
}

test("twelve clients with one idempotency key start one run, time after time", async () => {
  await using mesh = await startMesh();
  const replicas = await startReplicas(mesh, 1);
  const { name: workflow } = await mesh.given.workflow();
  const clients = TWELVE.map((_, i) => (i % 2 === 0 ? connectTo(mesh.url) : replicas[0]!));

  for (let round = 0; round < 12; round++) {
    const idempotencyKey = `order-${round}`;
    const started = await Promise.all(clients.map(({ runs }) => runs.startRun({ workflow, idempotencyKey })));

    expect(new Set(started.map((answer) => answer.runId)).size).toBe(1);
    expect(started.filter((answer) => answer.created)).toHaveLength(1);
  }

  const { runs } = await mesh.runs.listRuns({ filter: { workflow } });
  expect(runs).toHaveLength(12);
  for (const client of clients) client.close();
  for (const replica of replicas) await replica[Symbol.asyncDispose]();
});

test("batches with the same keys in another order wait for each other in one order, and start each key once", async () => {
  await using mesh = await startMesh();
  const [replica] = await startReplicas(mesh, 1);
  const { name: workflow } = await mesh.given.workflow();
  const keys = Array.from({ length: 101 }, (_, i) => `order-${i}`);
  const start = ({ runs }: Pick<TestMesh, "runs">, inOrder: readonly string[]) =>
    runs.startRuns({ runs: inOrder.map((idempotencyKey) => ({ workflow, idempotencyKey })) });

  // Both meet at the key in the middle, which somebody holds, and go on at the same time.
  const middle = digestOf(`key:${keys[50]}`);
  const undone = new Error("undone");
  let answers: Promise<Awaited<ReturnType<typeof start>>[]> | undefined;
  const held = mesh.db.transaction(async (tx) => {
    await tx.rows("hold_key", HOLD_KEY, [workflow, middle]);
    answers = Promise.all([start(mesh, keys), start(replica!, keys.toReversed())]);
    await expect.poll(() => mesh.db.rows("list_waiting", LIST_WAITING, []), { timeout: 10_000 }).toHaveLength(2);
    throw undone;
  });
  await expect(held).rejects.toBe(undone);

  const results = (await answers!).flatMap((answer) => answer.results.map(({ result }) => result));
  expect(results.filter((result) => result.case !== "started")).toEqual([]);
  expect(results.filter((result) => result.case === "started" && result.value.created)).toHaveLength(keys.length);
  await replica![Symbol.asyncDispose]();
});

test("four schedulers and four lease-managers over 10,000 ready tasks never claim one twice", async () => {
  await using mesh = await startMesh();
  const replicas = await startReplicas(mesh, 3);
  const { name } = await mesh.given.workflow({ tasks: Array.from({ length: 100 }, (_, i) => ({ key: `t${i}` })) });
  const runIds = await startMany(mesh, name, TASKS / 100);
  const claimed: LeasedTask[] = [];
  const drain = async (cluster: Pick<TestMesh, "leases" | "worker">) => {
    const worker = await cluster.worker();
    for (let tasks = await worker.acquire(150); tasks.length > 0; tasks = await worker.acquire(150)) {
      claimed.push(...tasks);
      const completed = tasks.map(({ taskId, fence }) => ({ taskId, fence }));
      const { results } = await cluster.leases.completeTasks({ ...worker.session, tasks: completed });
      expect(results.filter((result) => result.error !== undefined)).toEqual([]);
    }
    worker.close();
  };

  const startedAt = performance.now();
  await Promise.all([mesh, ...replicas, mesh, ...replicas].map(drain));
  const tookMs = performance.now() - startedAt;
  for (const replica of replicas) await replica[Symbol.asyncDispose]();

  console.info(`${TASKS} tasks claimed by 8 workers of 4 lease-managers in ${Math.round(tookMs)} ms`);
  expect(claimed).toHaveLength(TASKS);
  expect(new Set(claimed.map((task) => task.taskId)).size).toBe(TASKS);
  expect(new Set(claimed.map((task) => task.fence)).size).toBe(TASKS);
  const attempts = await mesh.db.one("", "SELECT count(*)::int AS n, max(number) AS most FROM attempt", []);
  expect(attempts).toEqual({ n: TASKS, most: 1 });
  for (const runId of runIds) expect((await mesh.runs.getRun({ runId })).run!.state).toBe(Run_State.SUCCEEDED);
});

test("I-8 nothing of a run is leased or accepted after CancelRun returned, in 1,000 interleavings", async () => {
  await using mesh = await startMesh();
  const [replica] = await startReplicas(mesh, 1);
  const retry = { initialInterval: "1ms", maxAttempts: 0 };
  const { name } = await mesh.given.workflow({
    tasks: [
      { key: "a", retry },
      { key: "b", retry },
      { key: "c", dependsOn: ["a"], retry },
      { key: "d", dependsOn: ["a", "b"], retry },
    ],
  });
  const cancelled = new Map<bigint, number>();
  const wrong: string[] = [];
  const over = new AbortController();
  const check = (what: string, runId: bigint, sentAt: number) => {
    if (sentAt > (cancelled.get(runId) ?? Number.POSITIVE_INFINITY)) wrong.push(`${what} of run ${runId}`);
  };
  const report = async (worker: MeshWorker, task: LeasedTask) => {
    await stumble(4);
    const sentAt = performance.now();
    const fate = randomInt(10);
    if (fate === 0 && (await worker.release(task)) === "accepted") check("release", task.runId, sentAt);
    else if (fate < 4 && (await worker.fail(task)) === "accepted") check("failure", task.runId, sentAt);
    else if (fate >= 4 && (await worker.complete(task)) === "accepted") check("completion", task.runId, sentAt);
  };
  const work = async (worker: MeshWorker) => {
    while (!over.signal.aborted) {
      const sentAt = performance.now();
      const tasks = await worker.acquire(20, { waitMs: 100 });
      for (const task of tasks) check("lease", task.runId, sentAt);
      await Promise.all(tasks.map((task) => report(worker, task)));
    }
    worker.close();
  };
  const workers = await Promise.all([mesh.worker(), mesh.worker(), replica!.worker(), replica!.worker()]);
  const working = Promise.all(workers.map(work));

  let late = 0;
  for (let done = 0; done < INTERLEAVINGS; done += AT_ONCE) {
    const runIds = await startMany(mesh, name, AT_ONCE);
    await Promise.all(
      runIds.map(async (runId, i) => {
        await stumble(150);
        const { runs } = i % 2 === 0 ? mesh : replica!;
        try {
          await runs.cancelRun({ runId });
          cancelled.set(runId, performance.now());
        } catch (error) {
          expect(error).toMatchObject({ reason: "ILLEGAL_MOVE" });
          late++;
        }
      }),
    );
  }
  over.abort();
  await working;
  await replica![Symbol.asyncDispose]();

  console.info(`${cancelled.size} runs cancelled in flight, ${late} had succeeded before`);
  expect(wrong).toEqual([]);
  expect(cancelled.size + late).toBe(INTERLEAVINGS);
  expect(cancelled.size).toBeGreaterThan(INTERLEAVINGS / 10);
  const accepted = await mesh.db.rows(
    "",
    `SELECT run.id FROM run JOIN attempt ON attempt.task_id >> 20 = run.id
    WHERE run.state = 6 AND attempt.outcome <> 4 AND attempt.ended_at > run.finished_at`,
    [],
  );
  expect(accepted).toEqual([]);
});

test("B-12 nothing is leased of a paused run until it is resumed, and nothing is left behind", async () => {
  await using mesh = await startMesh();
  const retry = { initialInterval: "1ms", maxAttempts: 0 };
  const tasks = Array.from({ length: 6 }, (_, i) => ({ key: `t${i}`, retry, dependsOn: i < 3 ? [] : [`t${i - 3}`] }));
  const { name } = await mesh.given.workflow({ tasks });
  const pauses = new Map<bigint, { from: number; to: number }[]>();
  const wrong: string[] = [];
  const over = new AbortController();
  const work = async (worker: MeshWorker) => {
    while (!over.signal.aborted) {
      const sentAt = performance.now();
      const leased = await worker.acquire(10, { waitMs: 50 });
      const answeredAt = performance.now();
      for (const { runId } of leased) {
        const paused = pauses.get(runId)?.some(({ from, to }) => sentAt > from && answeredAt < to);
        if (paused) wrong.push(`lease of run ${runId}`);
      }
      await Promise.all(
        leased.map(async (task) => {
          await stumble(5);
          expect(await (randomInt(4) === 0 ? worker.fail(task) : worker.complete(task))).toBe("accepted");
        }),
      );
    }
  };
  const working = Promise.all([work(await mesh.worker()), work(await mesh.worker()), work(await mesh.worker())]);

  const runIds = await startMany(mesh, name, 60);
  await Promise.all(
    runIds.map(async (runId) => {
      for (let i = 0; i < 3; i++) {
        await stumble(20);
        try {
          await mesh.runs.pauseRun({ runId });
        } catch (error) {
          return expect(error).toMatchObject({ reason: "ILLEGAL_MOVE" });
        }
        const pause = { from: performance.now(), to: Number.POSITIVE_INFINITY };
        pauses.set(runId, [...(pauses.get(runId) ?? []), pause]);
        await stumble(60);
        pause.to = performance.now();
        try {
          await mesh.runs.resumeRun({ runId });
        } catch (error) {
          return expect(error).toMatchObject({ reason: "ILLEGAL_MOVE" });
        }
      }
    }),
  );
  const ended = await Promise.all(runIds.map((runId) => mesh.ended(runId)));
  over.abort();
  await working;

  expect(wrong).toEqual([]);
  expect(pauses.size).toBeGreaterThan(10);
  expect(new Set(ended.map((run) => run.state))).toEqual(new Set([Run_State.SUCCEEDED]));
});

test("twelve retries and twelve replays with one request id each open the run once", async () => {
  await using mesh = await startMesh();
  const clients = TWELVE.map(() => connectTo(mesh.url));
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxAttempts: 1 } }] });
  const worker = await mesh.worker();
  await worker.fail(await worker.acquireOne());

  await Promise.all(clients.map(({ runs }) => runs.retryRun({ runId, requestId: "retry-1" })));
  const [again, ...others] = await worker.acquire(12);
  await worker.fail(again!);
  const { taskId } = again!;
  await Promise.all(clients.map(({ tasks }) => tasks.replayTask({ taskId, requestId: "replay-1" })));
  const keys = await worker.drain();

  expect(others).toEqual([]);
  expect(keys).toEqual(["a"]);
  expect(await tellEvents(mesh, runId)).toEqual([
    "RUN_CREATED",
    "TASK_DEAD a",
    "RUN_FAILED",
    "RUN_RETRIED",
    "TASK_DEAD a",
    "RUN_FAILED",
    "TASK_REPLAYED a",
    "TASK_SUCCEEDED a",
    "RUN_SUCCEEDED",
  ]);
  for (const client of clients) client.close();
});

test("a cancel against twelve retries leaves the run either cancelled or open, and never in between", async () => {
  await using mesh = await startMesh();
  const { name } = await mesh.given.workflow({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });
  const runIds = await startMany(mesh, name, 20);

  for (const runId of runIds) {
    await mesh.runs.cancelRun({ runId });
    const move = async (i: number) => {
      await stumble(3);
      return i % 3 === 0 ? mesh.runs.cancelRun({ runId }) : mesh.runs.retryRun({ runId });
    };
    const results = await Promise.allSettled(TWELVE.map((_, i) => move(i)));
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason).toMatchObject({ reason: "ILLEGAL_MOVE" });
    }
  }

  const open = await mesh.db.rows<{ run_id: bigint }>("", "SELECT id AS run_id FROM run WHERE state = 2", []);
  const ready = await mesh.db.rows<{ run_id: bigint }>("", "SELECT task_id >> 20 AS run_id FROM ready", []);
  expect(idsOf(ready).sort()).toEqual(idsOf(open).sort());
});
