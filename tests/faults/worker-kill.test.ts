import { setTimeout as delay } from "node:timers/promises";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { defineTask } from "@runmesh/client";
import { AttemptOutcome } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { createWorker } from "@runmesh/worker";
import { expect, test } from "vitest";
import { z } from "zod";
import { listAttempts, tellAttempts, tellEvents } from "./history.ts";
import { startTcpProxy } from "./tcp-proxy.ts";
import { startWorkerProcess } from "./worker-process.ts";

const LONG = { timeout: 20_000, interval: 25 };
const sleeping = (ms: number) => ({ handler: "sleep", params: JSON.stringify({ ms }) });
const KILLED_MS = 5_000;

/** The leases as they stand: `task/fence`. */
async function listLeases(mesh: TestMesh): Promise<string[]> {
  const rows = await mesh.db.rows<{ lease: string }>(
    "",
    "SELECT task_id || '/' || fence AS lease FROM lease ORDER BY task_id",
    [],
  );
  return rows.map((row) => row.lease);
}

const countStarted = async (mesh: TestMesh) =>
  (await mesh.db.one<{ n: number }>("", "SELECT count(started_at)::int AS n FROM lease", [])).n;

async function giveRuns(mesh: TestMesh, count: number, ms: number): Promise<bigint[]> {
  const { name } = await mesh.given.workflow({ tasks: [sleeping(ms)] });
  const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: count }, () => ({ workflow: name })) });
  return results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));
}

test("G-1 a SIGKILLed worker's 50 tasks run again within 5 s under a 30 s lease", async () => {
  await using mesh = await startMesh();
  const runIds = await giveRuns(mesh, 50, 60_000);
  await using killed = await startWorkerProcess({ url: mesh.url, slots: 30, prefetch: 20 });
  await expect.poll(() => listLeases(mesh), LONG).toHaveLength(50);
  await expect.poll(() => countStarted(mesh), LONG).toBe(30);
  const rescuer = await mesh.worker({ handlers: ["sleep"], leaseMs: 30_000 });

  killed.kill("SIGKILL");
  const killedAt = performance.now();
  const again = [];
  while (again.length < 50) again.push(...(await rescuer.acquire(50, { waitMs: 10_000 })));
  const tookMs = performance.now() - killedAt;
  for (const task of again) expect(await rescuer.complete(task)).toBe("accepted");

  console.info(`50 tasks of a killed worker were leased again ${Math.round(tookMs)} ms after its end`);
  expect(tookMs).toBeLessThan(KILLED_MS);
  for (const runId of runIds) expect((await mesh.runs.getRun({ runId })).run!.state).toBe(Run_State.SUCCEEDED);
  const attempts = (await Promise.all(runIds.map((runId) => listAttempts(mesh, runId)))).flat();
  const lost = attempts.filter((attempt) => attempt.outcome === AttemptOutcome.LOST);
  expect(lost).toHaveLength(50);
  expect(lost.filter((attempt) => attempt.startTime !== undefined)).toHaveLength(30);
  expect(attempts).toHaveLength(100);
});

test("H-3 a worker whose connections were cut and who came back within the grace keeps all its leases", async () => {
  await using mesh = await startMesh();
  await using proxy = await startTcpProxy(mesh.url);
  const runIds = await giveRuns(mesh, 20, 0);
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const aborted: unknown[] = [];
  const sleep = defineTask({ name: "sleep", input: z.any(), output: z.any() }).handle(async (_, { signal }) => {
    signal.addEventListener("abort", () => aborted.push(signal.reason));
    await finished;
  });
  const worker = createWorker({
    url: proxy.url,
    handlers: [sleep],
    slots: 20,
    prefetch: 0,
    leaseMs: 30_000,
    log: () => {},
  });
  await worker.start();
  await expect.poll(() => countStarted(mesh), LONG).toBe(20);
  const before = await listLeases(mesh);
  // The end of this one's lease tells that the grace of those cut before it is over.
  await mesh.given.run({ tasks: [{ handler: "control" }] });
  const control = await mesh.worker({ handlers: ["control"], leaseMs: 30_000 });
  await control.acquireOne();

  proxy.cut();
  control.close();
  const after = await mesh.worker({ handlers: ["control"] });
  const recovered = await after.acquireOne();
  const kept = await listLeases(mesh);
  finish();
  await Promise.all(runIds.map((runId) => mesh.ended(runId)));
  await worker.stop();

  expect(recovered.attempt).toBe(2);
  expect(kept.slice(0, 20)).toEqual(before);
  expect(aborted).toEqual([]);
  for (const runId of runIds) expect(await listAttempts(mesh, runId)).toMatchObject([{ number: 1, outcome: 1 }]);
  await after.complete(recovered);
});

test("11 of 20 workers cut within a second lose nothing early, even where some came back at once", async () => {
  await using mesh = await startMesh();
  await giveRuns(mesh, 20, 0);
  const workers = await Promise.all(
    Array.from({ length: 20 }, () => mesh.worker({ handlers: ["sleep"], leaseMs: 30_000 })),
  );
  for (const worker of workers) await worker.begin(await worker.acquireOne());
  const before = await listLeases(mesh);

  for (const worker of workers.slice(0, 5)) worker.close();
  const back = await Promise.all(
    workers.slice(0, 5).map((worker) => mesh.worker({ ...worker.session, handlers: ["sleep"] })),
  );
  for (const worker of workers.slice(5, 11)) worker.close();
  // A later one alone is no storm: when its lease was ended, those of the storm were passed over.
  await delay(1_500);
  workers[11]!.close();
  await expect.poll(() => listLeases(mesh), LONG).toHaveLength(19);
  const kept = await listLeases(mesh);

  expect(back).toHaveLength(5);
  expect(before.filter((lease) => !kept.includes(lease))).toHaveLength(1);
  const { tasks } = await mesh.leases.acquireTasks({ ...workers[12]!.session, max: 20 });
  expect(tasks).toMatchObject([{ attempt: 2 }]);
});

test("workers that stop in order are no broken links: the one killed among them is recovered early", async () => {
  await using mesh = await startMesh();
  await giveRuns(mesh, 1, 0);
  const killed = await mesh.worker({ handlers: ["sleep"], leaseMs: 30_000 });
  await killed.begin(await killed.acquireOne());
  const idle = defineTask({ name: "idle", input: z.any(), output: z.any() }).handle(() => null);
  const workers = Array.from({ length: 5 }, () => createWorker({ url: mesh.url, handlers: [idle], log: () => {} }));
  for (const worker of workers) await worker.start();
  const rescuer = await mesh.worker({ handlers: ["sleep"] });

  const stopped = workers.map((worker) => worker.stop());
  killed.close();
  await Promise.all(stopped);
  const again = await rescuer.acquireOne({ waitMs: 10_000 });

  expect(again.attempt).toBe(2);
  expect(await rescuer.complete(again)).toBe("accepted");
});

test("an exclusive task of a killed worker waits for its lease, the one beside it does not", async () => {
  await using mesh = await startMesh();
  const exclusive = await mesh.given.run({ tasks: [{ key: "exclusive", exclusive: true, ...sleeping(60_000) }] });
  const plain = await mesh.given.run({ tasks: [{ key: "plain", ...sleeping(60_000) }] });
  await using killed = await startWorkerProcess({ url: mesh.url, leaseMs: 9_000 });
  await expect.poll(() => countStarted(mesh), LONG).toBe(2);
  const rescuer = await mesh.worker({ handlers: ["sleep"] });

  killed.kill("SIGKILL");
  await killed.exited;
  const { until } = await mesh.db.one<{ until: Date }>("", "SELECT min(expires_at) AS until FROM lease", []);
  const first = await rescuer.acquireOne();
  const second = await rescuer.acquireOne();
  for (const task of [first, second]) await rescuer.complete(task);

  expect([first.key, second.key]).toEqual(["plain", "exclusive"]);
  const leasedAt = async (runId: bigint) => timestampMs((await listAttempts(mesh, runId))[1]!.leaseTime!);
  expect(await leasedAt(plain)).toBeLessThan(until.getTime());
  expect(await leasedAt(exclusive)).toBeGreaterThanOrEqual(until.getTime());
});

test("I-2 a stopped worker keeps its lease to its end, and when it wakes it is refused and its handler aborted", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", ...sleeping(60_000) }] });
  await using stopped = await startWorkerProcess({ url: mesh.url, leaseMs: 6_000 });
  await expect.poll(() => countStarted(mesh), LONG).toBe(1);
  const rescuer = await mesh.worker({ handlers: ["sleep"] });

  stopped.kill("SIGSTOP");
  const task = await rescuer.acquireOne({ waitMs: 20_000 });
  const beforeWaking = [...stopped.told];
  stopped.kill("SIGCONT");
  await expect.poll(() => stopped.told.some((told) => told.did === "aborted"), LONG).toBe(true);
  const completed = await rescuer.complete(task, '"rescued"');

  expect(beforeWaking.some((told) => told.did === "aborted")).toBe(false);
  expect(stopped.told.find((told) => told.did === "aborted")).toMatchObject({ key: "a", cause: "lease_lost" });
  expect(completed).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["LOST", "SUCCEEDED"]);
  const [lost] = await listAttempts(mesh, runId);
  expect(timestampMs(lost!.endTime!) - timestampMs(lost!.leaseTime!)).toBeGreaterThanOrEqual(6_000);
});

test("B-1 a worker whose event loop is blocked for three leases keeps its lease", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", handler: "block", params: '{"ms":6000}' }] });
  await using _worker = await startWorkerProcess({ url: mesh.url, leaseMs: 2_000, slots: 1 });

  const run = await mesh.ended(runId);

  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["SUCCEEDED"]);
});

test("a task that kills its process each time ends DEAD with WORKER_LOST, and the other tasks finish", async () => {
  await using mesh = await startMesh();
  const retry = { maxLost: 1, initialInterval: "100ms" };
  const killer = await mesh.given.run({
    tasks: [{ key: "killer", handler: "kill", params: '{"afterMs":1500}', retry }],
  });
  const others = await Promise.all(Array.from({ length: 20 }, () => mesh.given.run()));
  let deaths = 0;
  const over = new AbortController();
  const supervise = async () => {
    while (!over.signal.aborted) {
      await using worker = await startWorkerProcess({ url: mesh.url, slots: 2 });
      over.signal.addEventListener("abort", () => worker.kill("SIGTERM"));
      if (over.signal.aborted) return;
      if ((await worker.exited) === "SIGKILL") deaths++;
    }
  };

  const supervised = Promise.all([supervise(), supervise()]);
  const run = await mesh.ended(killer);
  const ended = await Promise.all(others.map((runId) => mesh.ended(runId)));
  over.abort();
  await supervised;

  expect(run).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "WORKER_LOST", taskKey: "killer" } });
  expect(await tellEvents(mesh, killer)).toEqual([
    "RUN_CREATED",
    "TASK_RETRYING killer",
    "TASK_DEAD killer",
    "RUN_FAILED",
  ]);
  expect(deaths).toBe(2);
  expect(new Set(ended.map(({ state }) => state))).toEqual(new Set([Run_State.SUCCEEDED]));
});

test("a task that may run once is DEAD when its process dies as soon as it begins, and never runs again", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({
    tasks: [{ key: "once", handler: "kill", params: '{"afterMs":0}', retry: { maxAttempts: 1 } }],
  });
  await using worker = await startWorkerProcess({ url: mesh.url, leaseMs: 2_000 });

  const how = await worker.exited;
  const run = await mesh.ended(runId);

  expect(how).toBe("SIGKILL");
  expect(run).toMatchObject({ state: Run_State.FAILED, failure: { errorType: "WORKER_LOST", taskKey: "once" } });
  expect(await tellAttempts(mesh, runId, "once")).toEqual(["LOST"]);
});

test("H-15 at SIGTERM a worker keeps renewing until its last task ends, and gives back what it has not started", async () => {
  await using mesh = await startMesh();
  const retry = { maxAttempts: 1, maxLost: 0 };
  const tasks = [1, 2, 3].map((n) => ({ key: `t${n}`, priority: -n, retry, ...sleeping(5_000) }));
  const runId = await mesh.given.run({ tasks });
  await using worker = await startWorkerProcess({ url: mesh.url, leaseMs: 2_000, slots: 1, prefetch: 2 });
  await expect.poll(() => countStarted(mesh), LONG).toBe(1);
  await expect.poll(() => listLeases(mesh), LONG).toHaveLength(3);

  worker.kill("SIGTERM");
  const how = await worker.exited;
  const rescuer = await mesh.worker({ handlers: ["sleep"] });
  const keys = await rescuer.drain();

  expect(how).toBe("SIGTERM");
  expect(keys).toEqual(["t2", "t3"]);
  expect(await tellAttempts(mesh, runId, "t1")).toEqual(["SUCCEEDED"]);
  expect(await tellAttempts(mesh, runId, "t2")).toEqual(["RELEASED", "SUCCEEDED"]);
  expect(await tellAttempts(mesh, runId, "t3")).toEqual(["RELEASED", "SUCCEEDED"]);
});

test("V-3 when the grace of a stop is over, what still runs is aborted and given back without burning", async () => {
  await using mesh = await startMesh();
  const retry = { maxAttempts: 1, maxLost: 0 };
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry, ...sleeping(60_000) }] });
  await using worker = await startWorkerProcess({ url: mesh.url, gracefulStopMs: 300 });
  await expect.poll(() => countStarted(mesh), LONG).toBe(1);

  worker.kill("SIGTERM");
  await worker.exited;
  const rescuer = await mesh.worker({ handlers: ["sleep"] });
  const task = await rescuer.acquireOne({ waitMs: 0 });

  expect(worker.told.find((told) => told.did === "aborted")).toMatchObject({ cause: "stopping" });
  expect(await rescuer.complete(task)).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["RELEASED", "SUCCEEDED"]);
});
