import { setTimeout as delay } from "node:timers/promises";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { startReplicas } from "./cluster.ts";
import { startWorkerProcess } from "./worker-process.ts";

const LIMIT = 3;
const KILLS = 10;
const WITHIN = { timeout: 20_000, interval: 10 };

test("a limit of 3 holds under four lease-managers and ten killed workers, and no slot is lost", async () => {
  await using mesh = await startMesh();
  const replicas = await startReplicas(mesh, 3);
  const urls = [mesh.url, ...replicas.map((replica) => replica.url)];
  const { name } = await mesh.given.workflow({
    tasks: [{ handler: "sleep", params: '{"ms":200}', concurrency: { key: "k", limit: LIMIT } }],
  });
  const started = await mesh.runs.startRuns({ runs: Array.from({ length: 60 }, () => ({ workflow: name })) });
  const most: number[] = [];
  const over = new AbortController();
  const watching = (async () => {
    while (!over.signal.aborted) {
      const { n } = await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM lease", []);
      const { slots } = await mesh.db.one<{ slots: number }>("", "SELECT count(*)::int AS slots FROM slot", []);
      most.push(Math.max(n, slots));
      await delay(5);
    }
  })();
  const start = (i: number) => startWorkerProcess({ url: urls[i % urls.length]!, slots: 3, leaseMs: 1_000 });

  for (let i = 1; i <= KILLS; i++) {
    await using victim = await start(i);
    await expect.poll(() => victim.told.some((line) => line.did === "started"), WITHIN).toBe(true);
    victim.kill("SIGKILL");
  }
  await using keeper = await start(0);
  for (const { result } of started.results) {
    const { runId } = (result as { value: { runId: bigint } }).value;
    expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
  }
  over.abort();
  await watching;

  expect(keeper.told.some((line) => line.did === "started")).toBe(true);
  expect(Math.max(...most)).toBe(LIMIT);
  expect(await mesh.db.rows("", "SELECT task_id FROM slot", [])).toEqual([]);
  const { lost } = await mesh.db.one<{ lost: number }>(
    "",
    "SELECT count(*)::int AS lost FROM attempt WHERE outcome = 3",
    [],
  );
  expect(lost).toBeGreaterThanOrEqual(KILLS);
  console.info(`${most.length} looks, at most ${Math.max(...most)} leases; ${lost} leases of killed workers were lost`);
  for (const replica of replicas) await replica[Symbol.asyncDispose]();
}, 180_000);
