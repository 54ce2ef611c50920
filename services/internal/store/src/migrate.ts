import { createHash, randomUUID } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { MeshError } from "@runmesh/domain/errors";
import pg from "pg";
import { TIMEOUTS } from "./pool.ts";
import { classifyStoreError, sqlState } from "./store-errors.ts";

export interface MigrateOptions {
  /** Straight to PostgreSQL: a session's advisory lock does not survive PgBouncer in transaction mode. */
  readonly url: string;
  readonly folder?: string;
  /** How long to wait for another process that migrates. Default one minute. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
}

interface Migration {
  readonly name: string;
  readonly sql: string;
  readonly checksum: string;
}

interface AppliedRow {
  readonly migration_name: string;
  readonly checksum: string;
  readonly finished_at: Date | null;
}

/** Found from this file, in the checkout as in a package. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL("../prisma/migrations", import.meta.url));

/** The same number that `prisma migrate deploy` locks, so that the two exclude each other. */
const ADVISORY_LOCK = 72_707_369;
const LOCK_POLL_MS = 50;
const DEFAULT_WAIT_MS = 60_000;
const CONNECTION_TIMEOUT_MS = 10_000;
const DUPLICATE_DATABASE = "42P04";
const UNIQUE_VIOLATION = "23505";
const NO_SUCH_DATABASE = "3D000";

/** Prisma's bookkeeping, column for column, so that `prisma migrate deploy` and `status` agree with what was done. */
const BOOKKEEPING = `
  CREATE TABLE IF NOT EXISTS _prisma_migrations (
    id varchar(36) PRIMARY KEY NOT NULL,
    checksum varchar(64) NOT NULL,
    finished_at timestamptz,
    migration_name varchar(255) NOT NULL,
    logs text,
    rolled_back_at timestamptz,
    started_at timestamptz NOT NULL DEFAULT now(),
    applied_steps_count integer NOT NULL DEFAULT 0
  )`;

/**
 * Brings the schema up to this code and returns the names of the migrations it applied. Safe to run in any number of
 * processes at once: one applies, the others wait and find nothing to do. Refuses with ILLEGAL_MOVE a database that is
 * newer than the code, whose migrations had other texts, or where one has failed half-way.
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const migrations = await readMigrations(options.folder ?? MIGRATIONS_FOLDER);
  return await withClient(options.url, async (client) => {
    const pending = await findPending(client, migrations);
    if (pending.length === 0) return [];
    await takeLock(client, options);
    await client.query(BOOKKEEPING);
    const applied: string[] = [];
    for (const migration of await findPending(client, migrations)) {
      await apply(client, migration);
      applied.push(migration.name);
    }
    await setRoleTimeouts(client);
    return applied;
  });
}

/** Creates the database that the URL names when it is missing; another process may do so at the same time. */
export async function ensureDatabase(url: string): Promise<void> {
  try {
    await withClient(url, async () => undefined);
  } catch (error) {
    if (sqlState(error) !== NO_SUCH_DATABASE) throw error;
    const maintenance = new URL(url);
    const name = decodeURIComponent(maintenance.pathname.slice(1));
    maintenance.pathname = "/postgres";
    await withClient(maintenance.href, async (client) => {
      try {
        await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
      } catch (failure) {
        const state = sqlState(failure);
        if (state !== DUPLICATE_DATABASE && state !== UNIQUE_VIOLATION) throw failure;
      }
    });
  }
}

async function readMigrations(folder: string): Promise<Migration[]> {
  const entries = await readdir(folder, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  return await Promise.all(
    names.sort().map(async (name) => {
      const sql = await readFile(join(folder, name, "migration.sql"), "utf8");
      return { name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
    }),
  );
}

async function findPending(client: pg.Client, migrations: readonly Migration[]): Promise<Migration[]> {
  const table = await client.query<{ found: string | null }>("SELECT to_regclass('_prisma_migrations')::text AS found");
  if (table.rows[0]?.found === null) return [...migrations];
  const { rows } = await client.query<AppliedRow>(`
    SELECT migration_name, checksum, finished_at
    FROM _prisma_migrations
    WHERE rolled_back_at IS NULL
    ORDER BY started_at`);
  const known = new Map(migrations.map((migration) => [migration.name, migration]));
  for (const row of rows) refuseOther(row, known.get(row.migration_name));
  const applied = new Set(rows.map((row) => row.migration_name));
  return migrations.filter((migration) => !applied.has(migration.name));
}

function refuseOther(row: AppliedRow, migration: Migration | undefined): void {
  const name = row.migration_name;
  if (migration === undefined) {
    throw new MeshError("ILLEGAL_MOVE", `The database is newer than this code: it has migration ${name}.`);
  }
  if (row.finished_at === null) {
    throw new MeshError("ILLEGAL_MOVE", `Migration ${name} has failed half-way; resolve it with prisma first.`);
  }
  if (row.checksum !== migration.checksum) {
    throw new MeshError("ILLEGAL_MOVE", `Migration ${name} was applied with another text than this code has.`);
  }
}

async function takeLock(client: pg.Client, { waitMs = DEFAULT_WAIT_MS, signal }: MigrateOptions): Promise<void> {
  const deadline = performance.now() + waitMs;
  // Asked again and again rather than waited for: a waiting statement would hold a snapshot, and some migrations wait
  // for every snapshot to end.
  for (;;) {
    const { rows } = await client.query<{ taken: boolean }>("SELECT pg_try_advisory_lock($1) AS taken", [
      ADVISORY_LOCK,
    ]);
    if (rows[0]?.taken === true) return;
    if (performance.now() > deadline) {
      throw new MeshError("UNAVAILABLE", `Another process has been migrating for ${waitMs} ms.`, {
        retryAfterMs: 5_000,
      });
    }
    await sleep(LOCK_POLL_MS * (0.5 + Math.random()), undefined, signal === undefined ? {} : { signal });
  }
}

/** The migration and its bookkeeping stand or fall together. */
async function apply(client: pg.Client, { name, sql, checksum }: Migration): Promise<void> {
  try {
    await client.query("BEGIN");
    await client.query(sql);
    await client.query(
      `
      INSERT INTO _prisma_migrations (id, checksum, migration_name, started_at, finished_at, applied_steps_count)
      VALUES ($1, $2, $3, now(), clock_timestamp(), 1)`,
      [randomUUID(), checksum, name],
    );
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => undefined);
    throw new Error(`migration ${name} failed and was rolled back`, { cause: error });
  }
}

/** For connections that cannot bring startup options: through PgBouncer, or psql in a hurry. */
async function setRoleTimeouts(client: pg.Client): Promise<void> {
  const { statementMs, lockMs, idleInTransactionMs } = TIMEOUTS.general;
  const { rows } = await client.query<{ name: string }>("SELECT current_database() AS name");
  const database = pg.escapeIdentifier(rows[0]?.name ?? "");
  for (const [setting, milliseconds] of [
    ["statement_timeout", statementMs],
    ["lock_timeout", lockMs],
    ["idle_in_transaction_session_timeout", idleInTransactionMs],
  ]) {
    await client.query(`ALTER ROLE CURRENT_USER IN DATABASE ${database} SET ${setting} = ${milliseconds}`);
  }
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  let lost = false;
  const client = new pg.Client({
    connectionString: url,
    application_name: "runmesh-migrate",
    connectionTimeoutMillis: CONNECTION_TIMEOUT_MS,
    // A migration may take longer than any statement of the mesh; it must not wait long for a lock, though.
    options: "-c statement_timeout=0 -c lock_timeout=30s -c idle_in_transaction_session_timeout=60s -c TimeZone=UTC",
  });
  client.on("error", () => {
    lost = true;
  });
  try {
    await client.connect().catch((error: unknown) => {
      throw classifyStoreError(error, true);
    });
    return await work(client);
  } catch (error) {
    throw classifyStoreError(error, lost);
  } finally {
    await client.end().catch(() => undefined);
  }
}
