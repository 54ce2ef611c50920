// Proves that the dump under review and the Prisma schema say what the migrations make. `--write` updates the dump.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Db, openDb } from "@runmesh/store/db";
import { startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";
import { ensureDatabase, migrate } from "@runmesh/store/migrate";
import { makePrismaDdl } from "./prisma-ddl.ts";
import { findSchemaDrift } from "./schema-drift.ts";
import { dumpSchema } from "./schema-dump.ts";

const store = new URL("../services/internal/store/", import.meta.url);
const DUMP = fileURLToPath(new URL("schema.sql", store));
const PRISMA_SCHEMA = fileURLToPath(new URL("prisma/schema.prisma", store));

const dataDir = await mkdtemp(join(tmpdir(), "runmesh-schema-"));
const postgres = await startEmbeddedPostgres({ dataDir, fast: true, log: (line) => console.error(line) });
try {
  const faults = await findFaults(postgres.url, { write: process.argv.includes("--write") });
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
} finally {
  await postgres.stop();
  await rm(dataDir, { recursive: true, force: true });
}

async function findFaults(url: string, { write }: { write: boolean }): Promise<string[]> {
  await migrate({ url });
  await using migrated = useDb(url);
  const dump = await dumpSchema(migrated.db);
  if (write) await writeFile(DUMP, dump);
  const faults =
    dump === (await readFile(DUMP, "utf8")) ? [] : ["schema.sql is stale: npm run check:schema -- --write"];

  const prismaUrl = new URL(url);
  prismaUrl.pathname = "/prisma";
  await ensureDatabase(prismaUrl.href);
  await using prisma = useDb(prismaUrl.href);
  await prisma.db.rows("", await makePrismaDdl(await readFile(PRISMA_SCHEMA, "utf8"), prismaUrl.href), []);
  return [...faults, ...(await findSchemaDrift(migrated.db, prisma.db))];
}

function useDb(url: string): { db: Db } & AsyncDisposable {
  const db = openDb({ url, size: 1, purpose: "general", applicationName: "runmesh-check-schema" });
  return { db, [Symbol.asyncDispose]: () => db.close() };
}
