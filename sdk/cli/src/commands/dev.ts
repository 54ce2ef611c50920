import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { readCount } from "../arguments.ts";
import { readDatabaseUrl } from "../database-url.ts";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { ownName } from "../own-name.ts";
import { DEFAULT_URL } from "../session.ts";
import { type LogLevel, loadStandalone, type Standalone } from "../standalone-package.ts";
import { formatRecord } from "../table.ts";
import { untilAborted } from "../until-aborted.ts";
import { UsageError } from "../usage-error.ts";

export const DEFAULT_PORT = 7400;
export const DEFAULT_DATA = ".runmesh";

interface DevOptions {
  readonly port: number;
  readonly data?: string;
  readonly databaseUrl?: string;
  readonly logLevel: LogLevel;
}

export function addDev(program: Command, host: Host): void {
  program
    .command("dev")
    .description("bring a whole mesh up on this machine and keep it up until Ctrl-C")
    .option("--port <port>", "where it listens; 0 takes a free one", readCount(0, 65_535), DEFAULT_PORT)
    .option("--data <folder>", `where the embedded PostgreSQL keeps everything (default: ${DEFAULT_DATA})`)
    .option("--database-url <url>", "a PostgreSQL of yours in place of the embedded one (RUNMESH_DATABASE_URL)")
    .addOption(
      new Option("--log-level <level>", "how much the services say")
        .choices(["silent", "error", "warn", "info", "debug"])
        .default("warn"),
    )
    .action(async (options: DevOptions, command: Command) => {
      const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);
      const databaseUrl = findDatabaseUrl(options, host);
      const { startStandalone } = await loadStandalone();

      const mesh = await startStandalone({
        port: options.port,
        logLevel: options.logLevel,
        ...(databaseUrl === undefined ? { dataDir: resolve(options.data ?? DEFAULT_DATA) } : { databaseUrl }),
      });

      try {
        const { url, dataDir } = mesh;
        const database = databaseUrl === undefined ? "embedded" : withoutPassword(databaseUrl);
        printer.one({ url, dataDir, database }, () => describe(mesh, database, ownName(host.env)));
        await untilAborted(host.signal);
        printer.note("Stopping.");
      } finally {
        await mesh.stop();
      }
    });
}

/** The database of one's own, where one is meant: a folder that is named wins over the variable. */
export function findDatabaseUrl(options: { databaseUrl?: string; data?: string }, host: Host): string | undefined {
  if (options.databaseUrl !== undefined && options.data !== undefined) {
    throw new UsageError("--data and --database-url exclude each other", { advice: "Give one of the two." });
  }
  if (options.databaseUrl === undefined && (options.data !== undefined || !host.env.RUNMESH_DATABASE_URL)) {
    return undefined;
  }
  return readDatabaseUrl(options.databaseUrl, host);
}

function describe(mesh: Standalone, database: string, name: string): string[] {
  const url = mesh.url === DEFAULT_URL ? "" : ` --url ${mesh.url}`;
  return [
    "RunMesh is up.",
    "",
    ...formatRecord([
      ["  URL", mesh.url],
      ["  folder", mesh.dataDir],
      ["  database", database],
    ]),
    "",
    "Try, in another terminal:",
    `  echo '{"name": "hello", "tasks": [{"key": "hi", "handler": "hi"}]}' | ${name} workflow register -${url}`,
    "",
    "Ctrl-C stops it; the database keeps everything.",
  ];
}

export function withoutPassword(text: string): string {
  const url = URL.parse(text);
  if (url === null) return "yours";
  url.password = "";
  url.search = "";
  return url.href;
}
