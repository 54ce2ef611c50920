import { randomInt } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { doctor } from "@runmesh/standalone/maintenance";
import { openDb } from "@runmesh/store/db";
import { createGiven } from "@runmesh/testing/given";
import { expect, test } from "vitest";
import { findEmbeddedDatabase } from "../../sdk/cli/src/embedded-database.ts";
import { connectTo } from "./cluster.ts";
import { IS_LONG, insist, keepStarting } from "./load.ts";
import { findFreePort, startServerProcess } from "./server-process.ts";
import { startWorkerProcess } from "./worker-process.ts";

const ROUNDS = IS_LONG ? 20 : 3;
const TEST_MS = 120_000 + ROUNDS * 60_000;

/** A loss after a start is allowed here: the worker was killed. A failure is not. */
const TASKS = ["a", "b", "c"].map((key, i, keys) => ({
  key,
  handler: i === 1 ? "sleep" : "work",
  params: '{"ms":50}',
  retry: { maxAttempts: 1, maxLost: 100, initialInterval: "100ms" },
  dependsOn: keys.slice(i - 1, i),
}));

test(
  `G-1 T-12 a worker and the server SIGKILLed ${ROUNDS} times under load: nothing lost, one accepted result each`,
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "runmesh-kill-"));
    const port = await findFreePort();
    const over = new AbortController();
    let server = await startServerProcess(dataDir, port);
    const { url } = server;
    const startWorker = () => startWorkerProcess({ url, leaseMs: 5_000, slots: 20 });
    const workers = [await startWorker(), await startWorker()];
    const clients = connectTo(url);
    try {
      const { name: workflow } = await createGiven(clients).workflow({ tasks: TASKS });
      const starting = Promise.all(
        [1, 2, 3].map((i) => keepStarting(clients.runs, workflow, `client-${i}`, over.signal)),
      );
      const downMs: number[] = [];

      for (let round = 0; round < ROUNDS; round++) {
        await delay(200 + randomInt(1_500));
        workers.shift()!.kill("SIGKILL");
        const worker = startWorker();
        await delay(randomInt(1_000));
        const killedAt = performance.now();
        await server.kill("SIGKILL");
        server = await startServerProcess(dataDir, port);
        downMs.push(Math.round(performance.now() - killedAt));
        workers.push(await worker);
      }
      await delay(500);
      over.abort();
      const runIds = (await starting).flat();
      const stateOf = async (runId: bigint) => (await insist(() => clients.runs.getRun({ runId }))).run!.state;
      for (const runId of runIds) {
        await expect.poll(() => stateOf(runId), { timeout: 90_000, interval: 25 }).toBe(Run_State.SUCCEEDED);
      }

      console.info(`${runIds.length} runs over ${ROUNDS} kills; the server was back after ${downMs.join(", ")} ms`);
      const databaseUrl = findEmbeddedDatabase(dataDir)!;
      expect(await doctor({ databaseUrl })).toEqual([]);
      const db = openDb({ url: databaseUrl, size: 1, purpose: "general", applicationName: "runmesh-test" });
      const [runs] = await db.rows("", "SELECT count(*)::int AS n FROM run", []);
      const [accepted] = await db.rows(
        "",
        "SELECT count(*)::int AS n, count(DISTINCT task_id)::int AS tasks FROM attempt WHERE outcome = 1",
        [],
      );
      const failed = await db.rows("", "SELECT task_id FROM attempt WHERE outcome IN (2, 5)", []);
      await db.close();
      expect(runs).toEqual({ n: runIds.length });
      expect(accepted).toEqual({ n: runIds.length * 3, tasks: runIds.length * 3 });
      expect(failed).toEqual([]);
    } finally {
      over.abort();
      clients.close();
      for (const worker of workers) await worker[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true, force: true });
    }
  },
  TEST_MS,
);

test("a folder whose mesh was SIGKILLed is found again, and never has two meshes at once", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "runmesh-twice-"));
  const [port, other] = [await findFreePort(), await findFreePort()];
  const first = await startServerProcess(dataDir, port);
  try {
    const clients = connectTo(first.url);
    const runId = await createGiven(clients).run();

    await expect(startServerProcess(dataDir, other)).rejects.toThrow(/ended with/);
    await first.kill("SIGKILL");
    await using second = await startServerProcess(dataDir, port);
    const again = connectTo(second.url);
    const { run } = await again.runs.getRun({ runId });

    expect(run!.state).toBe(Run_State.RUNNING);
    expect(await doctor({ databaseUrl: findEmbeddedDatabase(dataDir)! })).toEqual([]);
    clients.close();
    again.close();
  } finally {
    await first.kill("SIGKILL");
    await rm(dataDir, { recursive: true, force: true });
  }
});
