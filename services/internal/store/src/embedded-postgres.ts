import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync, realpathSync, renameSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { MeshError } from "@runmesh/domain/errors";
import { type FolderLock, lockFolder } from "./folder-lock.ts";
import { ensureDatabase } from "./migrate.ts";
import { commandAs, findPostgresUser, loadPostgresBinaries } from "./postgres-binaries.ts";
import { ensureCluster, SUPERUSER } from "./postgres-cluster.ts";
import { clearOrphan, isPostmasterReady, stopPostmaster } from "./postmaster.ts";

/**
 * A real PostgreSQL in a folder, for one machine. Invariants:
 *
 * 1. One launcher per folder: the folder's lock is taken before anything in it is read.
 * 2. Never two servers on the data: one that outlived its launcher is shut down before the next starts.
 * 3. What was committed stays: fsync and synchronous_commit are on, but for tests that ask otherwise.
 */
export interface EmbeddedPostgres {
  /** Of the database `runmesh`, which exists. */
  readonly url: string;
  readonly dataDir: string;
  readonly lock: FolderLock;
  /** Shuts the server down and gives the folder back. */
  stop(): Promise<void>;
}

export interface EmbeddedPostgresOptions {
  readonly dataDir: string;
  /** A free one by default. Only this machine reaches it. */
  readonly port?: number;
  readonly log: (line: string) => void;
  /** For tests only: writes are not synced, so a power cut loses the data. */
  readonly fast?: boolean;
}

const READY_POLL_MS = 5;
/** Recovery after a crash replays at most `max_wal_size`. */
const START_TIMEOUT_MS = 120_000;
const MAX_LOG_BYTES = 10 * 1024 * 1024;
const MAX_PORT_ATTEMPTS = 5;
const MAX_RESTART_DELAY_MS = 10_000;
/** A server that ran for so long does not fail at its start: the next one is not put off for the sake of earlier ones. */
const STABLE_MS = 1_000;

const SETTINGS = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  max_connections: 200,
  shared_buffers: "256MB",
  max_wal_size: "2GB",
  jit: "off",
  TimeZone: "UTC",
  log_timezone: "UTC",
};
const UNSYNCED = { fsync: "off", synchronous_commit: "off", full_page_writes: "off", shared_buffers: "128MB" };

export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const lock = lockFolder(options.dataDir);
  try {
    const server = await openServer(realpathSync(options.dataDir), options);
    const stop = async () => {
      await server.stop();
      lock.release();
    };
    return { url: server.url, dataDir: options.dataDir, lock, stop };
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function openServer(folder: string, options: EmbeddedPostgresOptions) {
  const binaries = await loadPostgresBinaries();
  const user = findPostgresUser();
  const cluster = await ensureCluster(folder, binaries, user, { sync: !options.fast });
  const { dataFolder, password } = cluster;
  await clearOrphan(dataFolder, options.log);
  const logFile = join(folder, "postgres.log");
  rotate(logFile);

  const settings = { ...SETTINGS, ...(options.fast ? UNSYNCED : {}) };
  const spawnOn = (port: number): ChildProcess => {
    const flags = Object.entries({ ...settings, port }).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const args = ["-D", dataFolder, ...flags];
    const command = commandAs(user, binaries.postgres, args, { folder, endWithUs: true });
    // A file and not a pipe: the log goes on when this process does not.
    const log = openSync(logFile, "a");
    // Detached: an interrupt from the terminal is for us, and we shut down in order.
    const child = spawn(command.file, command.args, {
      ...command.options,
      stdio: ["ignore", log, log],
      detached: true,
    });
    closeSync(log);
    return child;
  };

  const { child, port } = await startOnPort(spawnOn, dataFolder, logFile, options.port);
  const supervised = supervise(child, () => spawnOn(port), options.log);
  // Without encryption whatever PGSSLMODE says: that is about another server.
  const url = `postgresql://${SUPERUSER}:${password}@127.0.0.1:${port}/runmesh?sslmode=disable`;
  try {
    await ensureDatabase(url);
  } catch (error) {
    await supervised.stop();
    throw error;
  }
  return { url, stop: supervised.stop };
}

async function startOnPort(
  spawnOn: (port: number) => ChildProcess,
  dataFolder: string,
  logFile: string,
  wanted: number | undefined,
): Promise<{ child: ChildProcess; port: number }> {
  for (let attempt = 1; ; attempt++) {
    const port = await takeFreePort(wanted ?? 0);
    const child = spawnOn(port);
    if (await becomesReady(child, dataFolder)) return { child, port };
    const lostThePort = wanted === undefined && !(await isFree(port));
    if (!lostThePort || attempt === MAX_PORT_ATTEMPTS) {
      throw new MeshError("UNAVAILABLE", `PostgreSQL did not start on ${dataFolder}: ${lastLines(logFile)}`);
    }
  }
}

/** False when the process ended instead. */
async function becomesReady(child: ChildProcess, dataFolder: string): Promise<boolean> {
  let failure: Error | undefined;
  child.once("error", (error) => {
    failure = error;
  });
  const deadline = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < deadline) {
    if (failure !== undefined) throw new Error("postgres cannot be run", { cause: failure });
    if (child.exitCode !== null || child.signalCode !== null) return false;
    if (child.pid !== undefined && isPostmasterReady(dataFolder, child.pid)) return true;
    await sleep(READY_POLL_MS);
  }
  if (child.pid !== undefined) await stopPostmaster(child.pid);
  return false;
}

/** Starts the server again when it ends by itself; callers see a short time without a database. */
function supervise(first: ChildProcess, respawn: () => ChildProcess, log: (line: string) => void) {
  let current = first;
  let stopping = false;
  let restarts = 0;
  let timer: NodeJS.Timeout | undefined;
  const interrupt = () => current.kill("SIGINT");
  const watch = (child: ChildProcess) => {
    const startedAt = performance.now();
    child.on("error", (error) => log(`postgres: ${error.message}`));
    child.once("exit", (code, signal) => {
      if (stopping) return;
      if (performance.now() - startedAt > STABLE_MS) restarts = 0;
      const delayMs = Math.min(100 * 2 ** restarts, MAX_RESTART_DELAY_MS);
      log(`postgres ended by itself (${signal ?? code}); starting it again in ${delayMs} ms`);
      restarts += 1;
      timer = setTimeout(() => {
        current = respawn();
        watch(current);
      }, delayMs);
    });
  };
  watch(first);
  // For a process that ends without stopping us, where the kernel does not see to it.
  process.once("exit", interrupt);
  const stop = async () => {
    stopping = true;
    clearTimeout(timer);
    process.off("exit", interrupt);
    const isRunning = current.exitCode === null && current.signalCode === null;
    if (isRunning && current.pid !== undefined) await stopPostmaster(current.pid);
  };
  return { stop };
}

async function takeFreePort(wanted: number): Promise<number> {
  const server = createServer();
  try {
    return await new Promise<number>((resolve, reject) => {
      server.once("error", reject).listen(wanted, "127.0.0.1", () => {
        const address = server.address();
        resolve(address !== null && typeof address === "object" ? address.port : wanted);
      });
    });
  } catch (cause) {
    throw new MeshError("ALREADY_EXISTS", `Port ${wanted} is taken by another program.`, { cause });
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

function isFree(port: number): Promise<boolean> {
  return takeFreePort(port).then(
    () => true,
    () => false,
  );
}

function rotate(logFile: string): void {
  const size = statSync(logFile, { throwIfNoEntry: false })?.size ?? 0;
  if (size > MAX_LOG_BYTES) renameSync(logFile, `${logFile}.1`);
}

function lastLines(logFile: string): string {
  return readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-4).join(" | ");
}
