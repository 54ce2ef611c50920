import { openDb } from "@runmesh/store/db";
import { migrate as applyMigrations, ensureDatabase } from "@runmesh/store/migrate";
import { type Finding, inspect } from "./doctor.ts";

export { bootstrapKey, hasAdminKey } from "./bootstrap-key.ts";

/** Brings a database to this version's schema. Safe to race; answers what it applied. */
export async function migrate({ databaseUrl }: { databaseUrl: string }): Promise<{ applied: string[] }> {
  await ensureDatabase(databaseUrl);
  return { applied: await applyMigrations({ url: databaseUrl }) };
}

/** Checks the whole state of a database for broken invariants. */
export async function doctor({ databaseUrl }: { databaseUrl: string }): Promise<Finding[]> {
  const db = openDb({ url: databaseUrl, size: 1, purpose: "general", applicationName: "runmesh-doctor" });
  try {
    return await inspect(db);
  } finally {
    await db.close();
  }
}
