import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SCHEMA = fileURLToPath(new URL("../services/internal/store/prisma/schema.prisma", import.meta.url));

/**
 * Makes the typed client from a schema file. `prisma` fetches its schema engine before any command, from a place that
 * not every network reaches, and `generate` never runs it: any program that exists stands in for it.
 */
export function generatePrismaClient(schema = SCHEMA): void {
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, PRISMA_HIDE_UPDATE_MESSAGE: "1" };
  execFileSync("npx", ["prisma", "generate", "--schema", schema], {
    cwd: ROOT,
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
}

if (import.meta.main) generatePrismaClient();
