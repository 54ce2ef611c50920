import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { readCount } from "../arguments.ts";
import { readDatabaseUrl } from "../database-url.ts";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { ownName } from "../own-name.ts";
import { type LogLevel, loadMaintenance, loadStandalone } from "../standalone-package.ts";
import { untilAborted } from "../until-aborted.ts";
import { UsageError } from "../usage-error.ts";
import { DEFAULT_DATA, DEFAULT_PORT, findDatabaseUrl, withoutPassword } from "./dev.ts";

interface StartOptions {
  readonly host: string;
  readonly port: number;
  readonly data?: string;
  readonly databaseUrl?: string;
  readonly pgbouncerUrl?: string;
  readonly authentication: "keys" | "local";
  readonly logLevel: LogLevel;
  readonly keepDays?: number;
}

const MAX_KEEP_DAYS = 36_500;
const DAY_MS = 86_400_000;

/** Serves for real: keys unless told otherwise, JSON logs on stderr, nothing for the eye. */
export function addStart(program: Command, host: Host): void {
  program
    .command("start")
    .description("serve a whole mesh for others; every caller needs a key")
    .option("--host <address>", "where it listens; 0.0.0.0 for every address", "127.0.0.1")
    .option("--port <port>", "0 takes a free one", readCount(0, 65_535), DEFAULT_PORT)
    .option("--data <folder>", `where the embedded PostgreSQL keeps everything (default: ${DEFAULT_DATA})`)
    .option("--database-url <url>", "a PostgreSQL of yours in place of the embedded one (RUNMESH_DATABASE_URL)")
    .option("--pgbouncer-url <url>", "PgBouncer in transaction mode before that PostgreSQL (RUNMESH_PGBOUNCER_URL)")
    .addOption(
      new Option("--authentication <how>", "local takes every caller for the admin, on loopback only")
        .choices(["keys", "local"])
        .default("keys"),
    )
    .option("--keep-days <count>", "how long ended runs are kept (default: 30)", readCount(1, MAX_KEEP_DAYS))
    .addOption(
      new Option("--log-level <level>", "how much the services say, as JSON on stderr")
        .choices(["silent", "error", "warn", "info", "debug"])
        .default("info"),
    )
    .action(async (options: StartOptions, command: Command) => {
      const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);
      const databaseUrl = findDatabaseUrl(options, host);
      const pgbouncerUrl = findPgbouncerUrl(options, databaseUrl, host);
      const keySecret = host.env.RUNMESH_KEY_SECRET || undefined;
      const { startStandalone } = await loadStandalone();

      const mesh = await startStandalone({
        host: options.host,
        port: options.port,
        logLevel: options.logLevel,
        authentication: options.authentication,
        ...(keySecret !== undefined && { keySecret }),
        ...(options.keepDays !== undefined && { keepRunsMs: options.keepDays * DAY_MS }),
        ...(pgbouncerUrl !== undefined && { pgbouncerUrl }),
        ...(databaseUrl === undefined ? { dataDir: resolve(options.data ?? DEFAULT_DATA) } : { databaseUrl }),
      });

      try {
        const { url, dataDir } = mesh;
        const database = databaseUrl === undefined ? "embedded" : withoutPassword(databaseUrl);
        printer.one({ url, dataDir, database, authentication: options.authentication }, () => [`Serving at ${url}`]);
        if (options.authentication === "keys") {
          const { hasAdminKey } = await loadMaintenance();
          const where = databaseUrl === undefined ? `--data ${dataDir}` : "--database-url …";
          // The key itself is not made here: this output is kept in journals.
          if (!(await hasAdminKey({ databaseUrl: mesh.databaseUrl }))) {
            printer.note(`No admin's key works yet: ${ownName(host.env)} key create admin --bootstrap ${where}`);
          }
        }
        await untilAborted(host.signal);
      } finally {
        await mesh.stop();
      }
    });
}

/** It stands before a PostgreSQL of one's own, which is named as well: migrations go past it. */
function findPgbouncerUrl(options: StartOptions, databaseUrl: string | undefined, host: Host): string | undefined {
  if (databaseUrl !== undefined) {
    const url = options.pgbouncerUrl ?? (host.env.RUNMESH_PGBOUNCER_URL || undefined);
    return url === undefined ? undefined : readDatabaseUrl(url, host);
  }
  if (options.pgbouncerUrl === undefined) return undefined;
  throw new UsageError("--pgbouncer-url is of no use without a PostgreSQL of yours", {
    advice: "Give --database-url as well: migrations go straight to it.",
  });
}
