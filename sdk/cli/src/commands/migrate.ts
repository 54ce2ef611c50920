import type { Command } from "commander";
import { readDatabaseUrl } from "../database-url.ts";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { loadMaintenance } from "../standalone-package.ts";

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
