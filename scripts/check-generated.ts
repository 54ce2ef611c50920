// Proves that what is generated and committed is what the generators make now; says what is stale.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { generatePrismaClient } from "./generate-prisma.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

const scratch = mkdtempSync(join(tmpdir(), "runmesh-generated-"));
try {
  const stale = [...checkContracts(), ...checkPrismaClient()];
  for (const file of stale) console.error(`${file} is stale: npm run generate`);
  if (stale.length > 0) process.exitCode = 1;
} finally {
  rmSync(scratch, { recursive: true });
}

function checkContracts(): string[] {
  execFileSync("npx", ["buf", "generate", "--output", scratch], { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] });
  return findStale("gen/src", join(scratch, "gen/src"));
}

/** The schema names its output relative to itself, so that of a copy goes beside the copy. */
function checkPrismaClient(): string[] {
  const schema = join(scratch, "prisma/schema.prisma");
  mkdirSync(join(scratch, "prisma"));
  cpSync(join(ROOT, "services/internal/store/prisma/schema.prisma"), schema);
  generatePrismaClient(schema);
  return findStale("services/internal/store/src/generated", join(scratch, "src/generated"));
}

/** Files that differ, that are new, or that nothing makes any more. */
function findStale(committed: string, fresh: string): string[] {
  const names = new Set([...listFiles(join(ROOT, committed)), ...listFiles(fresh)]);
  return [...names]
    .sort()
    .filter((name) => readText(join(ROOT, committed, name)) !== readText(join(fresh, name)))
    .map((name) => join(committed, name));
}

function listFiles(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return names.filter((name) => statSync(join(folder, name)).isFile());
}

function readText(file: string): string | undefined {
  return statSync(file, { throwIfNoEntry: false })?.isFile() ? readFileSync(file, "utf8") : undefined;
}
