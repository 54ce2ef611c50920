import { randomUUID } from "node:crypto";
import { type Db, openDb } from "@runmesh/store/db";
import type { Purpose } from "@runmesh/store/pool";
import { inject } from "vitest";
import { createTestDatabase, dropTestDatabase } from "./template-database.ts";

export interface TestDatabase extends AsyncDisposable {
  readonly url: string;
  /** The same through PgBouncer, where the tests go through one. */
  readonly pgbouncerUrl: string | undefined;
  readonly db: Db;
  /** Closes `db` and drops the database. */
  close(): Promise<void>;
}

export interface UseDatabaseOptions {
  /** Default `general`. */
  readonly purpose?: Purpose;
  /** Without the schema. */
  readonly empty?: boolean;
  /** Connections of `db` at most; default 8. */
  readonly size?: number;
}

/** A database of the test's own, on the run's server: `await using database = await useDatabase()`. */
export async function useDatabase(options: UseDatabaseOptions = {}): Promise<TestDatabase> {
  const serverUrl = inject("postgresUrl");
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const url = await createTestDatabase(serverUrl, name, { empty: options.empty ?? false });
  const db = openDb({
    url,
    size: options.size ?? 8,
    purpose: options.purpose ?? "general",
    applicationName: "runmesh-test",
  });
  const close = async () => {
    await db.close();
    await dropTestDatabase(serverUrl, name);
  };
  return { url, pgbouncerUrl: throughPgbouncer(url), db, close, [Symbol.asyncDispose]: close };
}

function throughPgbouncer(url: string): string | undefined {
  const pgbouncer = inject("pgbouncerUrl");
  if (pgbouncer === "") return undefined;
  const through = new URL(pgbouncer);
  through.pathname = new URL(url).pathname;
  return through.href;
}
