import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Place of the port in `postmaster.pid`, as PostgreSQL documents it, and of the word "ready". */
const PORT_LINE = 3;
const STATUS_LINE = 7;

/**
 * Where the embedded PostgreSQL of a folder is reached, if one is up. For a look from outside, while the mesh that
 * started it goes on.
 */
export function findEmbeddedDatabase(dataDir: string): string | undefined {
  const pidFile = join(dataDir, "postgres", "postmaster.pid");
  const passwordFile = join(dataDir, "postgres.password");
  if (!existsSync(pidFile) || !existsSync(passwordFile)) return undefined;
  const lines = readFileSync(pidFile, "utf8").split("\n");
  const port = Number(lines[PORT_LINE]);
  if (lines[STATUS_LINE]?.trim() !== "ready" || !isAlive(Number(lines[0])) || !(port > 0)) return undefined;
  const password = encodeURIComponent(readFileSync(passwordFile, "utf8").trim());
  return `postgresql://postgres:${password}@127.0.0.1:${port}/runmesh`;
}

function isAlive(pid: number): boolean {
  if (!(pid > 0)) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
