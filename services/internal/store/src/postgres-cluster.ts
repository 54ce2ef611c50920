import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MeshError } from "@runmesh/domain/errors";
import { commandAs, type PostgresBinaries, type PostgresUser } from "./postgres-binaries.ts";

export interface PostgresCluster {
  /** PostgreSQL's own folder. */
  readonly dataFolder: string;
  readonly password: string;
}

export const SUPERUSER = "postgres";

/** The files of a server in our folder, made on first use. A first use that was cut short is made again from nothing. */
export async function ensureCluster(
  folder: string,
  binaries: PostgresBinaries,
  user: PostgresUser | undefined,
  { sync }: { sync: boolean },
): Promise<PostgresCluster> {
  const dataFolder = join(folder, "postgres");
  const passwordFile = join(folder, "postgres.password");
  if (existsSync(join(dataFolder, "PG_VERSION"))) return { dataFolder, password: readPassword(passwordFile) };

  const partial = join(folder, "postgres.partial");
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { mode: 0o700 });
  rmSync(passwordFile, { force: true });
  writeFileSync(passwordFile, randomBytes(24).toString("base64url"), { mode: 0o600 });
  if (user !== undefined) {
    chownSync(partial, user.uid, user.gid);
    chownSync(passwordFile, user.uid, user.gid);
  }
  await runInitdb(folder, binaries, user, [
    `--pgdata=${partial}`,
    `--username=${SUPERUSER}`,
    `--pwfile=${passwordFile}`,
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    // The same order of names on every machine.
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    ...syncFlags(sync),
  ]);
  renameSync(partial, dataFolder);
  return { dataFolder, password: readPassword(passwordFile) };
}

/** One sync of the file system, where there is such a call, takes half the time of one for each of a thousand files. */
function syncFlags(sync: boolean): string[] {
  if (!sync) return ["--no-sync"];
  return process.platform === "linux" ? ["--sync-method=syncfs"] : [];
}

function readPassword(passwordFile: string): string {
  try {
    return readFileSync(passwordFile, "utf8").trim();
  } catch (cause) {
    throw new MeshError("NOT_FOUND", `The password of the data beside ${passwordFile} is missing.`, { cause });
  }
}

async function runInitdb(
  folder: string,
  binaries: PostgresBinaries,
  user: PostgresUser | undefined,
  args: readonly string[],
): Promise<void> {
  const command = commandAs(user, binaries.initdb, args, { folder, endWithUs: true });
  const child = spawn(command.file, command.args, { ...command.options, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`initdb ended with ${code}: ${output.slice(-2_000)}`);
}
