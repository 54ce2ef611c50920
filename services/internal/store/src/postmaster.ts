import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { MeshError } from "@runmesh/domain/errors";
import { findProcess } from "./process-identity.ts";

const POLL_MS = 10;
const STATUS_LINE = 7;
/** Fast shutdown, immediate shutdown, the end: each signal, and how long it may take. */
const SHUTDOWN: readonly (readonly [NodeJS.Signals, number])[] = [
  ["SIGINT", 20_000],
  ["SIGQUIT", 5_000],
  ["SIGKILL", 5_000],
];
/** No process has this number. */
const NOBODY = 2_147_483_646;

/** The server that says in its folder to be ready is the one with this number. */
export function isPostmasterReady(dataFolder: string, pid: number): boolean {
  const lines = readPidFile(dataFolder);
  return Number(lines[0]) === pid && lines[STATUS_LINE]?.trim() === "ready";
}

/** Asks for a fast shutdown, then for less and less; returns when the server is gone. */
export async function stopPostmaster(pid: number): Promise<void> {
  const startedAt = findProcess(pid)?.startedAt;
  const isGone = () => startedAt === undefined || findProcess(pid)?.startedAt !== startedAt;
  for (const [signal, patienceMs] of SHUTDOWN) {
    if (isGone()) return;
    process.kill(pid, signal);
    const deadline = performance.now() + patienceMs;
    while (!isGone() && performance.now() < deadline) await sleep(POLL_MS);
  }
  if (!isGone()) throw new MeshError("UNAVAILABLE", `PostgreSQL process ${pid} does not end.`, { retryAfterMs: 5_000 });
}

/**
 * Makes way for a new server on the folder, whose launcher was killed. A server that lives on is shut down: it runs
 * with settings and a port of its own. Only for who holds the folder's lock.
 */
export async function clearOrphan(dataFolder: string, log: (line: string) => void): Promise<void> {
  const lines = readPidFile(dataFolder);
  const pid = Number(lines[0]);
  if (!(pid > 0)) return;
  const found = findProcess(pid);
  if (found?.commandLine.includes("postgres") && found.commandLine.includes(dataFolder)) {
    log(`postgres ${pid} was left behind on ${dataFolder}; shutting it down`);
    await stopPostmaster(pid);
  }
  if (readPidFile(dataFolder)[0] === lines[0] && answersSignals(pid)) {
    // A zombie, or another program that was given the number: postgres would refuse to start for it. The rest of the
    // file stays, since by its shared-memory key postgres makes sure that no old backend is left.
    writeFileSync(join(dataFolder, "postmaster.pid"), [String(NOBODY), ...lines.slice(1)].join("\n"));
  }
}

function answersSignals(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

function readPidFile(dataFolder: string): string[] {
  try {
    return readFileSync(join(dataFolder, "postmaster.pid"), "utf8").split("\n");
  } catch {
    return [];
  }
}
