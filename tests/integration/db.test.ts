import { setTimeout as sleep } from "node:timers/promises";
import { MeshError } from "@runmesh/domain/errors";
import { byteaArray, int2Array, int4Array, int8Array } from "@runmesh/store/binary-parameters";
import { openDb } from "@runmesh/store/db";
import { isLockTimeout, violatedConstraint } from "@runmesh/store/store-errors";
import { useDatabase } from "@runmesh/testing/database";
import { expect, test } from "vitest";

const MAX_INT8 = 9_223_372_036_854_775_807n;

test("int8 and its arrays come back as bigint, timestamps as Date, to the last digit", async () => {
  await using database = await useDatabase();

  const row = await database.db.one("read_values", "SELECT $1::int8 AS id, $2::int8[] AS ids, $3::timestamptz AS at", [
    MAX_INT8,
    [1n, -MAX_INT8],
    new Date("2026-03-29T01:59:59.999Z"),
  ]);

  expect(row).toEqual({ id: MAX_INT8, ids: [1n, -MAX_INT8], at: new Date("2026-03-29T01:59:59.999Z") });
});

test("arrays encoded by hand arrive as they were", async () => {
  await using database = await useDatabase();
  const text = "SELECT $1::int8[] AS a, $2::int4[] AS b, $3::int2[] AS c, $4::bytea[] AS d, $5::int8[] AS none";

  const row = await database.db.one("read_arrays", text, [
    int8Array(BigInt64Array.of(MAX_INT8, -1n, 0n)),
    int4Array([2_147_483_647, -2_147_483_648]),
    int2Array([-32_768, 32_767]),
    byteaArray([Buffer.from([0, 255]), undefined, Buffer.alloc(0)]),
    int8Array([]),
  ]);

  expect(row).toEqual({
    a: [MAX_INT8, -1n, 0n],
    b: [2_147_483_647, -2_147_483_648],
    c: [-32_768, 32_767],
    d: [Buffer.from([0, 255]), null, Buffer.alloc(0)],
    none: [],
  });
});

test("two texts under one name each run as written", async () => {
  await using database = await useDatabase({ size: 1 });

  const first = await database.db.one("same", "SELECT 1 AS n", []);
  const second = await database.db.one("same", "SELECT 2 AS n", []);

  expect([first, second]).toEqual([{ n: 1 }, { n: 2 }]);
});

test("hot connections plan by index only, general ones as the server likes", async () => {
  await using hot = await useDatabase({ purpose: "hot" });
  await using general = await useDatabase();
  const text = "SELECT current_setting('enable_seqscan') AS scan, current_setting('plan_cache_mode') AS plan";

  expect(await hot.db.one("settings", text, [])).toEqual({ scan: "off", plan: "force_generic_plan" });
  expect(await general.db.one("settings", text, [])).toEqual({ scan: "on", plan: "auto" });
});

test("a failed transaction leaves nothing, and its error is the statement's", async () => {
  await using database = await useDatabase();

  const failing = database.db.transaction(async (tx) => {
    await tx.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'second')", []);
    await tx.rows("", "INSERT INTO tenant (id, name) VALUES (3, 'default')", []);
  });

  expect(violatedConstraint(await failing.catch((error: unknown) => error))).toBe("tenant_name_key");
  expect(await database.db.rows("", "SELECT id FROM tenant", [])).toEqual([{ id: 1 }]);
});

test("an inner transaction that fails takes back only itself", async () => {
  await using database = await useDatabase();

  await database.db.transaction(async (tx) => {
    await tx.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'kept')", []);
    const inner = tx.transaction(async (nested) => {
      await nested.rows("", "INSERT INTO tenant (id, name) VALUES (3, 'lost')", []);
      throw new Error("given up");
    });
    await expect(inner).rejects.toThrow("given up");
  });

  expect(await database.db.rows("", "SELECT id FROM tenant ORDER BY id", [])).toEqual([{ id: 1 }, { id: 2 }]);
});

test("the victim of a deadlock is run again and both transactions commit", async () => {
  await using database = await useDatabase();
  await database.db.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'two')", []);
  const bothHoldOne = Promise.withResolvers<void>();
  let holding = 0;
  let attempts = 0;
  const rename = (first: number, second: number) =>
    database.db.transaction(async (tx) => {
      attempts += 1;
      await tx.rows("", "UPDATE tenant SET name = name || 'x' WHERE id = $1", [first]);
      holding += 1;
      if (holding === 2) bothHoldOne.resolve();
      await bothHoldOne.promise;
      await tx.rows("", "UPDATE tenant SET name = name || 'x' WHERE id = $1", [second]);
    });

  await Promise.all([rename(1, 2), rename(2, 1)]);

  const rows = await database.db.rows("", "SELECT name FROM tenant ORDER BY id", []);
  expect(rows).toEqual([{ name: "defaultxx" }, { name: "twoxx" }]);
  expect(attempts).toBe(3);
});

test("a single statement that is the victim of a deadlock is run again", async () => {
  await using database = await useDatabase();
  await database.db.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'two')", []);
  // Each statement takes one row, waits until the other has its own, and takes that.
  const renameBoth = (first: number, second: number) =>
    database.db.rows(
      "",
      `WITH mine AS MATERIALIZED (SELECT id FROM tenant WHERE id = $1 FOR UPDATE),
      pause AS MATERIALIZED (SELECT pg_sleep(0.3) FROM mine),
      other AS MATERIALIZED (SELECT tenant.id FROM pause, tenant WHERE tenant.id = $2 FOR UPDATE OF tenant)
      UPDATE tenant SET name = tenant.name || 'x' FROM mine, other WHERE tenant.id IN (mine.id, other.id)`,
      [first, second],
    );

  await Promise.all([renameBoth(1, 2), renameBoth(2, 1)]);

  const rows = await database.db.rows("", "SELECT name FROM tenant ORDER BY id", []);
  expect(rows).toEqual([{ name: "defaultxx" }, { name: "twoxx" }]);
});

test("a lock that does not come in time is told apart from a lost database", async () => {
  await using database = await useDatabase();
  const blocked = await database.db.transaction(async (tx) => {
    await tx.rows("", "SELECT 1 FROM tenant FOR UPDATE", []);
    return await database.db
      .transaction(async (other) => {
        await other.rows("", "SET LOCAL lock_timeout = 20", []);
        await other.rows("", "SELECT 1 FROM tenant FOR UPDATE", []);
      })
      .catch((error: unknown) => error);
  });

  expect(isLockTimeout(blocked)).toBe(true);
  expect(blocked).not.toBeInstanceOf(MeshError);
});

test("an aborted transaction ends at once and rolls back", async () => {
  await using database = await useDatabase();
  const controller = new AbortController();
  const inserted = Promise.withResolvers<void>();

  const given = database.db.transaction(
    async (tx) => {
      await tx.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'second')", []);
      inserted.resolve();
      await tx.rows("", "SELECT pg_sleep(30)", []);
    },
    { signal: controller.signal },
  );
  await inserted.promise;
  controller.abort();

  await expect(given).rejects.toMatchObject({ reason: "CANCELLED" });
  expect(await database.db.rows("", "SELECT id FROM tenant", [])).toEqual([{ id: 1 }]);
});

test("connections ended by an administrator fail as UNAVAILABLE and the next ones work", async () => {
  await using database = await useDatabase();
  await using killer = await useDatabase();
  const { name } = await database.db.one<{ name: string }>("", "SELECT current_database() AS name", []);
  const asleep = Promise.allSettled([1, 2, 3].map(() => database.db.rows("", "SELECT pg_sleep(30)", [])));
  const inTransaction = database.db.transaction(async (tx) => {
    await tx.rows("", "SELECT 1", []);
    await killAll(killer, name);
    await tx.rows("", "SELECT 1", []);
  });

  await expect(inTransaction).rejects.toMatchObject({ reason: "UNAVAILABLE", retryAfterMs: 500 });
  for (const result of await asleep) {
    expect(result).toMatchObject({ status: "rejected", reason: { reason: "UNAVAILABLE" } });
  }
  expect(await database.db.one("", "SELECT 1 AS n", [])).toEqual({ n: 1 });
});

/** Waits until four connections are at work, then ends them. */
async function killAll(killer: Awaited<ReturnType<typeof useDatabase>>, name: string): Promise<void> {
  const text = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND state IN ('active', 'idle in transaction')";
  while ((await killer.db.rows("", text, [name])).length < 4) await sleep(5);
  await killer.db.rows("", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [name]);
}

test("a read-only database and an unreachable one are UNAVAILABLE", async () => {
  await using database = await useDatabase();
  const readOnly = database.db.transaction(async (tx) => {
    await tx.rows("", "SET TRANSACTION READ ONLY", []);
    await tx.rows("", "INSERT INTO tenant (id, name) VALUES (2, 'second')", []);
  });
  const nobody = openDb({
    url: "postgresql://nobody@127.0.0.1:1/none",
    size: 1,
    purpose: "general",
    applicationName: "runmesh-test",
  });

  await expect(readOnly).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  await expect(nobody.rows("", "SELECT 1", [])).rejects.toMatchObject({ reason: "UNAVAILABLE" });
});

test("without prepared statements nothing stays behind on the server", async () => {
  await using database = await useDatabase();
  const db = openDb({
    url: database.url,
    size: 1,
    purpose: "hot",
    applicationName: "runmesh-test",
    preparedStatements: false,
  });

  await db.one("named", "SELECT $1::int4 AS n", [1]);
  const left = await db.rows("count", "SELECT name FROM pg_prepared_statements", []);
  await db.close();

  expect(left).toEqual([]);
});
