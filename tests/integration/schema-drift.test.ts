import { readFile } from "node:fs/promises";
import { useDatabase } from "@runmesh/testing/database";
import { expect, test } from "vitest";
import { makePrismaDdl } from "../../scripts/prisma-ddl.ts";
import { findSchemaDrift } from "../../scripts/schema-drift.ts";
import { dumpSchema } from "../../scripts/schema-dump.ts";

const store = new URL("../../services/internal/store/", import.meta.url);

test("the Prisma schema says what the migrations make", async () => {
  await using migrated = await useDatabase();
  await using prisma = await usePrismaDatabase();

  expect(await findSchemaDrift(migrated.db, prisma.db)).toEqual([]);
});

test("a column that only the migrations have is drift", async () => {
  await using migrated = await useDatabase();
  await using prisma = await usePrismaDatabase();
  await migrated.db.rows("", "ALTER TABLE tenant ADD COLUMN motto text", []);

  expect(await findSchemaDrift(migrated.db, prisma.db)).toEqual([
    "tenant.motto: text nullable default none in the migrations, missing in schema.prisma",
  ]);
});

test("a column that only the Prisma schema has is drift", async () => {
  await using migrated = await useDatabase();
  await using prisma = await usePrismaDatabase((schema) =>
    schema.replace("model Duty {", "model Duty {\n  motto String?"),
  );

  expect(await findSchemaDrift(migrated.db, prisma.db)).toEqual([
    "duty.motto: missing in the migrations, text nullable default none in schema.prisma",
  ]);
});

test.each([
  ["a type", "ALTER TABLE duty ALTER COLUMN fence TYPE numeric", 1],
  ["nullability", "ALTER TABLE duty ALTER COLUMN owner DROP NOT NULL", 1],
  ["a default", "ALTER TABLE duty ALTER COLUMN owner SET DEFAULT 'x'", 1],
  ["a unique index", "ALTER TABLE tenant DROP CONSTRAINT tenant_name_key", 1],
  ["a plain index", "DROP INDEX scheduled_due", 1],
  ["a primary key", "ALTER TABLE duty DROP CONSTRAINT duty_pkey, ADD PRIMARY KEY (name, owner)", 2],
  ["a foreign key", "ALTER TABLE bus_message DROP CONSTRAINT bus_message_subscription_fkey", 1],
])("%s that differs is drift", async (_what, statement, differences) => {
  await using migrated = await useDatabase();
  await using prisma = await usePrismaDatabase();
  await migrated.db.rows("", statement, []);

  expect(await findSchemaDrift(migrated.db, prisma.db)).toHaveLength(differences);
});

test("the dump under review is that of the migrations, and no partition changes it", async () => {
  await using migrated = await useDatabase();
  await migrated.db.rows("", "SELECT ensure_partitions(1 << 20)", []);

  expect(await dumpSchema(migrated.db)).toBe(await readFile(new URL("schema.sql", store), "utf8"));
});

async function usePrismaDatabase(edit = (schema: string) => schema) {
  const database = await useDatabase({ empty: true });
  const schema = edit(await readFile(new URL("prisma/schema.prisma", store), "utf8"));
  await database.db.rows("", await makePrismaDdl(schema, database.url), []);
  return database;
}
