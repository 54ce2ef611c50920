import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";
import { migrate } from "@runmesh/store/migrate";
import type { TestProject } from "vitest/node";
import { createTemplate } from "./template-database.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Of the run's own server, whose databases come and go. */
    postgresUrl: string;
    /** PgBouncer in transaction mode before that server; empty where the tests go without. */
    pgbouncerUrl: string;
  }
}

/**
 * One PostgreSQL for the whole run, with a migrated database that each test file gets a copy of: an embedded one, or the
 * server that RUNMESH_TEST_DATABASE_URL names.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  project.provide("pgbouncerUrl", process.env.RUNMESH_TEST_PGBOUNCER_URL ?? "");
  const given = process.env.RUNMESH_TEST_DATABASE_URL;
  if (given !== undefined) {
    await createTemplate(given, async (url) => {
      await migrate({ url });
    });
    project.provide("postgresUrl", given);
    return async () => {};
  }
  const dataDir = await mkdtemp(join(tmpdir(), "runmesh-test-"));
  const postgres = await startEmbeddedPostgres({ dataDir, fast: true, log: (line) => console.error(line) });
  await createTemplate(postgres.url, async (url) => {
    await migrate({ url });
  });
  project.provide("postgresUrl", postgres.url);
  return async () => {
    await postgres.stop();
    await rm(dataDir, { recursive: true, force: true });
  };
}
