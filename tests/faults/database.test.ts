import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startStandalone } from "@runmesh/standalone/standalone";
import { type Db, openDb } from "@runmesh/store/db";
import { createGiven } from "@runmesh/testing/given";
import { startMesh } from "@runmesh/testing/mesh";
import { createWorker } from "@runmesh/worker";
import { expect, test } from "vitest";
import { connectTo } from "./cluster.ts";
import { CHAIN, IS_LONG, insist, keepStarting, work } from "./load.ts";

/** From the end of an outage until a new run is through. */
const RECOVERED_MS = 10_000;
const LONG_TEST_MS = 180_000;

const LOST = `
  SELECT attempt.task_id::text, attempt.outcome, attempt.error_type FROM attempt
  WHERE attempt.outcome IN (2, 5) OR (attempt.outcome = 3 AND attempt.started_at IS NOT NULL)`;

/** The server's process, once it stands: after a crash it is started again, later and later. */
async function findPostmaster(dataDir: string): Promise<number> {
  const read = () => readFile(join(dataDir, "postgres", "postmaster.pid"), "utf8").catch(() => "");
  let content = "";
  const isThere = async () => {
    content = await read();
    return content !== "";
  };
  await expect.poll(isThere, { timeout: 30_000, interval: 50 }).toBe(true);
  return Number(content.split("\n")[0]);
}

interface Loaded {
  readonly url: string;
  readonly runs: ReturnType<typeof connectTo>["runs"];
  readonly workflow: string;
  readonly db: Db;
}

/** Runs a load while the database fails, and shows that nothing of it was lost or burned. */
async function survive({ url, runs, workflow, db }: Loaded, outage: () => Promise<void>): Promise<void> {
  const worker = createWorker({ url, handlers: [work], slots: 20, log: () => {} });
  await worker.start();
  const over = new AbortController();
  const starting = Promise.all([1, 2, 3, 4].map((i) => keepStarting(runs, workflow, `client-${i}`, over.signal)));

  await delay(500);
  await outage();
  const endedAt = performance.now();
  const probe = await insist(() => runs.startRun({ workflow, idempotencyKey: "probe" }));
  const stateOf = async (runId: bigint) => (await insist(() => runs.getRun({ runId }))).run!.state;
  await expect.poll(() => stateOf(probe.runId), { timeout: 30_000, interval: 20 }).toBe(Run_State.SUCCEEDED);
  const recoveredMs = performance.now() - endedAt;
  over.abort();
  const runIds = (await starting).flat();
  for (const runId of runIds) {
    await expect.poll(() => stateOf(runId), { timeout: 30_000, interval: 20 }).toBe(Run_State.SUCCEEDED);
  }
  await worker.stop();

  console.info(`${runIds.length} runs; a new run was through ${Math.round(recoveredMs)} ms after the outage`);
  expect(recoveredMs).toBeLessThan(RECOVERED_MS);
  expect(await db.rows("", LOST, [])).toEqual([]);
  const { n } = await db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM run", []);
  expect(n).toBe(runIds.length + 1);
}

/** Runs a statement on the server, from outside the mesh's database. */
async function outside(databaseUrl: string, work: (db: Db, name: string) => Promise<void>): Promise<void> {
  const url = new URL(databaseUrl);
  const name = url.pathname.slice(1);
  url.pathname = "/postgres";
  const db = openDb({ url: url.href, size: 1, purpose: "general", applicationName: "runmesh-test-outside" });
  try {
    await work(db, name);
  } finally {
    await db.close();
  }
}

const terminateAll = (db: Db, name: string) =>
  db.rows("", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [name]);

test(
  "X-18 every connection terminated each 2 s under load: nothing is lost, no attempt burned",
  async () => {
    await using mesh = await startMesh();
    const { name: workflow } = await mesh.given.workflow({ tasks: CHAIN });

    await survive({ ...mesh, workflow }, () =>
      outside(mesh.databaseUrl, async (db, name) => {
        for (let i = 0; i < (IS_LONG ? 30 : 4); i++) {
          await terminateAll(db, name);
          await delay(2_000);
        }
        await terminateAll(db, name);
      }),
    );
  },
  LONG_TEST_MS,
);

test(
  "G-4 a time when the database can only be read: nothing is lost, no attempt burned",
  async () => {
    await using mesh = await startMesh();
    const { name: workflow } = await mesh.given.workflow({ tasks: CHAIN });

    await survive({ ...mesh, workflow }, () =>
      outside(mesh.databaseUrl, async (db, name) => {
        await db.rows("", `ALTER DATABASE "${name}" SET default_transaction_read_only = on`, []);
        await terminateAll(db, name);
        await delay(IS_LONG ? 60_000 : 5_000);
        // Connections made meanwhile stay read-only: the mesh must let go of them by itself.
        await db.rows("", `ALTER DATABASE "${name}" RESET default_transaction_read_only`, []);
      }),
    );
    // Events that waited through the outage are old when it ends: the doctor would say so until they are sent.
    await mesh.standalone.relayed();
  },
  LONG_TEST_MS,
);

test("after an outage longer than the lease, live leases get one renewal before expiry goes on", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxAttempts: 1, maxLost: 0 } }] });
  const worker = await mesh.worker({ leaseMs: 1_500 });
  const task = await worker.acquireOne();
  await worker.begin(task);

  await outside(mesh.databaseUrl, async (db, name) => {
    await db.rows("", `ALTER DATABASE "${name}" SET default_transaction_read_only = on`, []);
    await terminateAll(db, name);
    await delay(3_000);
    await db.rows("", `ALTER DATABASE "${name}" RESET default_transaction_read_only`, []);
  });
  const isExtended = async () => {
    const sql = "SELECT expires_at > clock_timestamp() AS alive FROM lease";
    return (await mesh.db.rows<{ alive: boolean }>("", sql, []))[0]?.alive;
  };
  await expect.poll(isExtended, { timeout: 15_000, interval: 20 }).toBe(true);

  expect(await insist(() => worker.complete(task))).toBe("accepted");
  expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
});

test(
  "a restart of PostgreSQL under load: nothing is lost, no attempt burned",
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "runmesh-restart-"));
    const standalone = await startStandalone({ dataDir, port: 0, logLevel: "silent" });
    const clients = connectTo(standalone.url);
    const db = openDb({ url: standalone.databaseUrl, size: 2, purpose: "general", applicationName: "runmesh-test" });
    try {
      const { workflows } = clients;
      const { name: workflow } = await createGiven({ runs: clients.runs, workflows }).workflow({ tasks: CHAIN });

      await survive({ url: standalone.url, runs: clients.runs, workflow, db }, async () => {
        for (let i = 0; i < (IS_LONG ? 10 : 2); i++) {
          const pid = await findPostmaster(dataDir);
          // An immediate shutdown is a crash to the data.
          process.kill(pid, "SIGQUIT");
          await delay(2_000);
        }
      });

      expect(await standalone.doctor()).toEqual([]);
    } finally {
      clients.close();
      await db.close();
      await standalone.stop();
      await rm(dataDir, { recursive: true, force: true });
    }
  },
  LONG_TEST_MS,
);
