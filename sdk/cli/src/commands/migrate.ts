import type { Command } from "commander";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { loadMaintenance } from "../standalone-package.ts";
import { UsageError } from "../usage-error.ts";

export function addMigrate(program: Command, host: Host): void {
  program
    .command("migrate")
    .description("bring a database to this version's schema; safe to run many times and at once")
    .option("--database-url <url>", "the PostgreSQL (RUNMESH_DATABASE_URL)")
    .action(async (options: { databaseUrl?: string }, command: Command) => {
      const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);
      const databaseUrl = readDatabaseUrl(options.databaseUrl, host);
      const { migrate } = await loadMaintenance();

      const { applied } = await migrate({ databaseUrl });

      printer.one({ applied }, () =>
        applied.length === 0 ? ["Nothing to apply."] : applied.map((name) => `Applied ${name}`),
      );
    });
}

export function readDatabaseUrl(option: string | undefined, host: Host): string {
  const url = option ?? (host.env.RUNMESH_DATABASE_URL || undefined);
  const protocol = url === undefined ? undefined : URL.parse(url)?.protocol;
  if (url !== undefined && (protocol === "postgres:" || protocol === "postgresql:")) return url;
  throw new UsageError(url === undefined ? "which database?" : "the database URL is no PostgreSQL URL", {
    advice: "Give --database-url or RUNMESH_DATABASE_URL, as in postgresql://user:password@host:5432/runmesh.",
  });
}
