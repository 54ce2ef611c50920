import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect } from "@runmesh/client";
import { doctor } from "@runmesh/standalone/maintenance";
import { type Db, openDb } from "@runmesh/store/db";
import { expect, test } from "vitest";
import { findEmbeddedDatabase } from "../../sdk/cli/src/embedded-database.ts";
import { startEffectsReceiver } from "./effects-receiver.ts";
import { IS_LONG, insist } from "./load.ts";
import { findFreePort, startServerProcess } from "./server-process.ts";
import { waiterWorkflow } from "./waiter-workflow.ts";

const WORKER_KILLS = IS_LONG ? 10 : 3;
const SERVER_KILLS = IS_LONG ? 3 : 1;
const RUNS = 5;
const ROUNDS = IS_LONG ? 12 : 5;
/** Two, one a round, one after the sleep, and the child's. */
const EFFECTS = RUNS * (2 + ROUNDS + 2);
const TEST_MS = 180_000 + (WORKER_KILLS + SERVER_KILLS * 2) * 30_000;
const SCRIPT = fileURLToPath(new URL("./fixtures/waiter.ts", import.meta.url));

async function startWaiter(url: string, receiverUrl: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, ["--conditions=runmesh-source", SCRIPT, JSON.stringify({ url, receiverUrl })], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await Promise.race([
    once(child.stdout, "data"),
    once(child, "exit").then(([code]) => Promise.reject(new Error(`the worker ended with ${code}`))),
  ]);
  return child;
}

/** When each step was recorded, by the key that was handed to it. */
async function listRecorded(db: Db): Promise<Map<string, number>> {
  const rows = await db.rows<{ key: string; at: Date }>(
    "",
    `SELECT concat(step.task_id >> 20, '/', CASE step.name WHEN 'part' THEN 'part' ELSE 'waiter' END, '/', step.name, '/',
        step.occurrence) AS key, step.at
      FROM step WHERE step.kind = 1 AND step.done IS NOT NULL`,
    [],
  );
  return new Map(rows.map((row) => [row.key, row.at.getTime()]));
}

test(
  `a workflow that sleeps, waits and acts, over ${WORKER_KILLS} SIGKILLs of its worker and ${SERVER_KILLS} of the server: no recorded step runs again, each effect counts once`,
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "runmesh-waits-"));
    const port = await findFreePort();
    await using receiver = await startEffectsReceiver(300);
    let server = await startServerProcess(dataDir, port);
    const { url } = server;
    let worker = await startWaiter(url, receiver.url);
    const client = connect({ url, timeoutMs: 90_000, attempts: 200 });
    try {
      const runs = await Promise.all(
        Array.from({ length: RUNS }, (_, i) =>
          client.start(waiterWorkflow, { rounds: ROUNDS }, { idempotencyKey: String(i) }),
        ),
      );
      const signalling = Promise.all(
        runs.map(async (run) => {
          for (let round = 0; round < ROUNDS; round++) {
            await delay(randomInt(IS_LONG ? 3_000 : 1_500));
            const requestId = `${run.id}-${round}`;
            const payload = { case: "valueJson" as const, value: Buffer.from(String(round)) };
            await insist(() => client.runs.sendSignal({ runId: BigInt(run.id), name: "go", requestId, payload }));
          }
        }),
      );

      for (let kill = 0; kill < WORKER_KILLS; kill++) {
        await delay(500 + randomInt(2_000));
        worker.kill("SIGKILL");
        if (kill % 3 === 1 && kill / 3 < SERVER_KILLS) {
          await server.kill("SIGKILL");
          server = await startServerProcess(dataDir, port);
        }
        worker = await startWaiter(url, receiver.url);
      }
      await signalling;
      const results = await Promise.all(runs.map((run) => run.result()));

      const databaseUrl = findEmbeddedDatabase(dataDir)!;
      const db = openDb({ url: databaseUrl, size: 1, purpose: "general", applicationName: "runmesh-test" });
      const recorded = await listRecorded(db);
      await db.close();
      const repeated = [...receiver.calls].filter(([, { count }]) => count > 1);
      console.info(
        `${receiver.effects.size} effects; ${repeated.length} steps were cut off before their record and ran again`,
      );
      expect([...recorded.keys()].sort()).toEqual([...receiver.effects.keys()].sort());
      expect([...receiver.calls].filter(([key, { lastAt }]) => lastAt > recorded.get(key)!)).toEqual([]);
      const effects = results.flatMap((result) => result.effects);
      expect(new Set(effects)).toEqual(new Set(receiver.effects.values()));
      expect(effects).toHaveLength(EFFECTS);
      for (const { signals } of results) expect(signals).toEqual(Array.from({ length: ROUNDS }, (_, i) => i));
      expect(await doctor({ databaseUrl })).toEqual([]);
    } finally {
      client.close();
      worker.kill("SIGKILL");
      await server[Symbol.asyncDispose]();
      await rm(dataDir, { recursive: true, force: true });
    }
  },
  TEST_MS,
);
