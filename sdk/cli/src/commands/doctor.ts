import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { findEmbeddedDatabase } from "../embedded-database.ts";
import { EXIT } from "../exit-codes.ts";
import type { Host } from "../host.ts";
import { createPrinter } from "../output.ts";
import { type Finding, loadMaintenance, loadStandalone } from "../standalone-package.ts";
import { printable } from "../terminal.ts";
import { UsageError } from "../usage-error.ts";
import { DEFAULT_DATA, findDatabaseUrl } from "./dev.ts";

interface DoctorOptions {
  readonly databaseUrl?: string;
  readonly data?: string;
}

export function addDoctor(program: Command, host: Host): void {
  program
    .command("doctor")
    .description("check that everything in the database adds up; exit 1 when it does not")
    .option("--data <folder>", `the folder of a mesh, up or not (default: ${DEFAULT_DATA})`)
    .option("--database-url <url>", "or a PostgreSQL of yours (RUNMESH_DATABASE_URL)")
    .action(async (options: DoctorOptions, command: Command) => {
      const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);

      const findings = await examine(options, host);

      printer.one({ findings }, () => (findings.length === 0 ? ["All is well."] : findings.flatMap(formatFinding)));
      if (findings.some((finding) => finding.severity === "error")) host.end(EXIT.RUN_FAILED);
    });
}

async function examine(options: DoctorOptions, host: Host): Promise<readonly Finding[]> {
  const ownDatabaseUrl = findDatabaseUrl(options, host);
  const { doctor } = await loadMaintenance();
  if (ownDatabaseUrl !== undefined) return doctor({ databaseUrl: ownDatabaseUrl });

  const dataDir = resolve(options.data ?? DEFAULT_DATA);
  if (!existsSync(dataDir)) {
    throw new UsageError(`there is no folder ${dataDir}`, { advice: "Name it by --data, or give --database-url." });
  }
  const databaseUrl = findEmbeddedDatabase(dataDir);
  if (databaseUrl !== undefined) return doctor({ databaseUrl });

  // Nobody is up on the folder: a mesh is brought up for as long as the look takes.
  const { startStandalone } = await loadStandalone();
  const mesh = await startStandalone({ dataDir, port: 0, logLevel: "silent" });
  try {
    return await mesh.doctor();
  } finally {
    await mesh.stop();
  }
}

function formatFinding(finding: Finding): string[] {
  const { severity, check, count, examples, advice } = finding;
  return [
    `${severity}: ${check}: ${count}`,
    ...examples.map((example) => `  ${printable(example)}`),
    `  ${printable(advice)}`,
  ];
}
