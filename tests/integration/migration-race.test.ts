import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ensureDatabase, MIGRATIONS_FOLDER, migrate } from "@runmesh/store/migrate";
import { useDatabase } from "@runmesh/testing/database";
import { expect, test } from "vitest";

const PROCESS = fileURLToPath(new URL("migrate-process.ts", import.meta.url));
const RACERS = 20;

interface Bookkeeping {
  migration_name: string;
  checksum: string;
  applied_steps_count: number;
  finished: boolean;
}

const BOOKKEEPING = `
  SELECT migration_name, checksum, applied_steps_count, finished_at IS NOT NULL AS finished
  FROM _prisma_migrations
  ORDER BY migration_name`;

test("twenty processes migrate an empty database at once: one applies, all end well", async () => {
  await using database = await useDatabase({ empty: true });

  const racers = await Promise.all(Array.from({ length: RACERS }, () => runMigrate(database.url)));

  expect(racers.map((racer) => racer.code)).toEqual(Array.from({ length: RACERS }, () => 0));
  const expected = await expectedBookkeeping();
  const applied = racers.flatMap((racer) => JSON.parse(racer.output) as string[]);
  expect(applied.sort()).toEqual(expected.map((row) => row.migration_name));
  expect(await database.db.rows<Bookkeeping>("", BOOKKEEPING, [])).toEqual(expected);
});

test("a migration that was applied with another text is refused", async () => {
  await using database = await useDatabase();
  await database.db.rows("", "UPDATE _prisma_migrations SET checksum = repeat('0', 64)", []);

  await expect(migrate({ url: database.url })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("a database that is newer than the code is refused", async () => {
  await using database = await useDatabase();
  await database.db.rows(
    "",
    `
    INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at)
    VALUES ('later', repeat('0', 64), '20990101000000_later', now())`,
    [],
  );

  await expect(migrate({ url: database.url })).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("a migration that fails leaves nothing, and the ones before it stay", async () => {
  await using database = await useDatabase();
  const folder = await mkdtemp(join(tmpdir(), "runmesh-migrations-"));
  await cp(MIGRATIONS_FOLDER, folder, { recursive: true });
  await mkdir(join(folder, "20990101000000_broken"));
  await writeFile(join(folder, "20990101000000_broken/migration.sql"), "CREATE TABLE half (id int); SELECT 1 / 0;");

  await expect(migrate({ url: database.url, folder })).rejects.toThrow("20990101000000_broken");

  expect(await database.db.one("", "SELECT to_regclass('half') AS found", [])).toEqual({ found: null });
  expect(await database.db.rows<Bookkeeping>("", BOOKKEEPING, [])).toEqual(await expectedBookkeeping());
  await rm(folder, { recursive: true });
});

test("who waits too long for another's migration is told to come back", async () => {
  await using database = await useDatabase({ empty: true });
  await database.db.transaction(async (tx) => {
    await tx.rows("", "SELECT pg_advisory_xact_lock(72707369)", []);

    const waiting = migrate({ url: database.url, waitMs: 100 });

    await expect(waiting).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  });
});

test("a missing database is created once, however many ask", async () => {
  await using database = await useDatabase({ empty: true });
  const url = new URL(database.url);
  url.pathname += "_other";

  await Promise.all([1, 2, 3, 4].map(() => ensureDatabase(url.href)));

  const name = url.pathname.slice(1);
  expect(await database.db.rows("", "SELECT 1 AS n FROM pg_database WHERE datname = $1", [name])).toEqual([{ n: 1 }]);
  await database.db.rows("", `DROP DATABASE ${name}`, []);
});

test("the role's timeouts hold for connections that bring none", async () => {
  await using database = await useDatabase({ empty: true });

  await migrate({ url: database.url });

  const text = `
    SELECT array_to_string(setconfig, ' ') AS settings
    FROM pg_db_role_setting
    JOIN pg_database ON pg_database.oid = setdatabase
    WHERE datname = current_database()`;
  const settings = "statement_timeout=30000 lock_timeout=10000 idle_in_transaction_session_timeout=30000";
  expect(await database.db.one("", text, [])).toEqual({ settings });
});

async function runMigrate(url: string): Promise<{ code: number; output: string }> {
  const child = spawn(process.execPath, [PROCESS, url], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  const [code] = await once(child, "close");
  return { code, output };
}

async function expectedBookkeeping(): Promise<Bookkeeping[]> {
  const entries = await readdir(MIGRATIONS_FOLDER, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  return await Promise.all(
    names.sort().map(async (name) => {
      const sql = await readFile(join(MIGRATIONS_FOLDER, name, "migration.sql"));
      const checksum = createHash("sha256").update(sql).digest("hex");
      return { migration_name: name, checksum, applied_steps_count: 1, finished: true };
    }),
  );
}
