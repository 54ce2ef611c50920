import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type Db, openDb } from "@runmesh/store/db";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";
import { expect, onTestFinished, test } from "vitest";

const LAUNCHER = fileURLToPath(new URL("launcher-process.ts", import.meta.url));
const HTTP_URL = "http://127.0.0.1:7070";

interface Answer {
  readonly url?: string;
  readonly reason?: string;
  readonly message?: string;
}

test("a killed launcher loses nothing, and the next one finds one server", async () => {
  const dataDir = await useFolder();
  const first = await startLauncher(dataDir);
  const before = useDb(first.answer.url ?? "");
  await before.rows("", "CREATE TABLE kept (id int)", []);
  await before.rows("", "INSERT INTO kept SELECT generate_series(1, 1000)", []);

  await kill(first.child);
  const second = await startLauncher(dataDir);

  expect(countServers(dataDir)).toBe(1);
  const after = useDb(second.answer.url ?? "");
  expect(await after.one("", "SELECT count(*)::int AS n FROM kept", [])).toEqual({ n: 1000 });
});

test("a server that outlived its launcher is shut down before the next starts", async () => {
  const dataDir = await useFolder();
  const first = await startLauncher(dataDir);
  const serverPid = postmasterPid(dataDir);
  // Stopped, the server cannot follow the kernel's request to end with its launcher before the next one looks.
  process.kill(serverPid, "SIGSTOP");
  await kill(first.child);

  const next = spawnLauncher(dataDir);
  expect(await firstLine(next.stderr)).toContain(`postgres ${serverPid} was left behind`);
  process.kill(serverPid, "SIGCONT");
  expect(JSON.parse(await firstLine(next.stdout))).toHaveProperty("url");

  expect(postmasterPid(dataDir)).not.toBe(serverPid);
  expect(countServers(dataDir)).toBe(1);
});

test("a second launcher is refused and told where the first one serves", async () => {
  const dataDir = await useFolder();
  const first = await startLauncher(dataDir);

  const second = await startLauncher(dataDir);

  expect(second.answer).toMatchObject({ reason: "ALREADY_EXISTS", message: expect.stringContaining(HTTP_URL) });
  expect(second.answer.message).toContain(String(first.child.pid));
  expect(countServers(dataDir)).toBe(1);
});

test("of many launchers on one folder exactly one gets it", async () => {
  const dataDir = await useFolder();

  const launchers = await Promise.all(Array.from({ length: 6 }, () => startLauncher(dataDir)));

  const reasons = launchers.map((launcher) => launcher.answer.reason ?? "started").sort();
  expect(reasons).toEqual([...Array.from({ length: 5 }, () => "ALREADY_EXISTS"), "started"]);
  expect(countServers(dataDir)).toBe(1);
});

test("a stopped launcher gives its folder back, server gone", async () => {
  const dataDir = await useFolder();
  const first = await startLauncher(dataDir);

  first.child.kill("SIGTERM");
  expect(await once(first.child, "exit")).toEqual([0, null]);

  expect(countServers(dataDir)).toBe(0);
  expect((await startLauncher(dataDir)).answer.reason).toBeUndefined();
});

test("a server that crashes is started again on the same URL", async () => {
  const dataDir = await useFolder();
  const postgres = await useServer(dataDir);
  const db = useDb(postgres.url);
  await db.rows("", "CREATE TABLE kept (id int)", []);

  process.kill(postmasterPid(dataDir), "SIGKILL");

  await expect.poll(() => db.rows("", "SELECT id FROM kept", []).catch(() => "down"), { timeout: 20_000 }).toEqual([]);
});

test("a pid file that names another program does not keep the server from starting", async () => {
  const dataDir = await useFolder();
  const postgres = await useServer(dataDir);
  const pidFile = join(dataDir, "postgres/postmaster.pid");
  const lines = readFileSync(pidFile, "utf8").split("\n");
  await postgres.stop();
  await writeFile(pidFile, [String(process.pid), ...lines.slice(1)].join("\n"));

  const again = await useServer(dataDir);

  expect(await useDb(again.url).one("", "SELECT 1 AS n", [])).toEqual({ n: 1 });
});

test("what is committed is synced", async () => {
  const db = useDb((await useServer(await useFolder())).url);
  const text = "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit";

  expect(await db.one("", text, [])).toEqual({ fsync: "on", commit: "on" });
});

test("a port that another program has is named", async () => {
  const postgres = await useServer(await useFolder());
  const port = Number(new URL(postgres.url).port);
  const dataDir = await useFolder();

  const given = startEmbeddedPostgres({ dataDir, port, log: () => undefined });

  await expect(given).rejects.toMatchObject({ reason: "ALREADY_EXISTS", message: expect.stringContaining(`${port}`) });
});

async function useFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "runmesh-embedded-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  return folder;
}

async function useServer(dataDir: string): Promise<EmbeddedPostgres> {
  const postgres = await startEmbeddedPostgres({ dataDir, log: () => undefined });
  onTestFinished(() => postgres.stop());
  return postgres;
}

function useDb(url: string): Db {
  const db = openDb({ url, size: 2, purpose: "general", applicationName: "runmesh-test" });
  onTestFinished(() => db.close());
  return db;
}

async function startLauncher(dataDir: string): Promise<{ child: ChildProcess; answer: Answer }> {
  const child = spawnLauncher(dataDir);
  return { child, answer: JSON.parse(await firstLine(child.stdout)) as Answer };
}

function spawnLauncher(dataDir: string) {
  const child = spawn(process.execPath, [LAUNCHER, dataDir, HTTP_URL], { stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await once(child, "exit");
  });
  return child;
}

async function firstLine(stream: Readable): Promise<string> {
  for await (const line of createInterface(stream)) return line;
  throw new Error("the launcher ended without a word");
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "exit");
}

function postmasterPid(dataDir: string): number {
  return Number(readFileSync(join(dataDir, "postgres/postmaster.pid"), "utf8").split("\n")[0]);
}

/** Servers, not their backends, that run on the folder. */
function countServers(dataDir: string): number {
  const list = execFileSync("ps", ["-eo", "stat=,args="], { encoding: "utf8" });
  const isServer = (line: string) => line.includes("bin/postgres") && line.includes(`-D ${dataDir}/postgres`);
  return list.split("\n").filter((line) => isServer(line) && !line.startsWith("Z")).length;
}
