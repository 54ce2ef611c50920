import type { Command } from "commander";
import { EXIT } from "../exit-codes.ts";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { type Finding, loadMaintenance } from "../standalone-package.ts";
import { printable } from "../terminal.ts";
import { readDatabaseUrl } from "./migrate.ts";

export function addDoctor(program: Command, host: Host): void {
  program
    .command("doctor")
    .description("check that everything in the database adds up; exit 1 when it does not")
    .option("--database-url <url>", "the PostgreSQL (RUNMESH_DATABASE_URL)")
    .action(async (options: { databaseUrl?: string }, command: Command) => {
      const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);
      const databaseUrl = readDatabaseUrl(options.databaseUrl, host);
      const { doctor } = await loadMaintenance();

      const findings = await doctor({ databaseUrl });

      printer.one({ findings }, () => (findings.length === 0 ? ["All is well."] : findings.flatMap(formatFinding)));
      if (findings.some((finding) => finding.severity === "error")) host.end(EXIT.RUN_FAILED);
    });
}

export function formatFinding(finding: Finding): string[] {
  const { severity, check, count, examples, advice } = finding;
  return [
    `${severity}: ${check}: ${count}`,
    ...examples.map((example) => `  ${printable(example)}`),
    `  ${printable(advice)}`,
  ];
}
