import { beforeEach, expect, test, vi } from "vitest";
import { runCli } from "../../test/run-cli.ts";
import type { BootstrapOptions, StandaloneOptions } from "../standalone-package.ts";

const fake = vi.hoisted(() => ({
  started: [] as unknown[],
  bootstrapped: [] as unknown[],
  hasKey: false,
}));

vi.mock("../standalone-package.ts", () => ({
  loadStandalone: async () => ({
    async startStandalone(options: StandaloneOptions) {
      fake.started.push(options);
      const { host, port, dataDir, databaseUrl = "postgresql://embedded" } = options;
      return { url: `http://${host}:${port}`, dataDir, databaseUrl, stop: async () => {} };
    },
  }),
  loadMaintenance: async () => ({
    hasAdminKey: async () => fake.hasKey,
    async bootstrapKey(options: BootstrapOptions) {
      fake.bootstrapped.push(options);
      return { id: "0123456789abcdef", name: options.name, secret: "rm_0123456789abcdef_secret" };
    },
  }),
}));

beforeEach(() => {
  Object.assign(fake, { started: [], bootstrapped: [], hasKey: false });
});

const DATABASE = "postgresql://me:password@db:5432/runmesh";

/** Ends as soon as it serves. */
function start(words: readonly string[], env: Record<string, string> = {}) {
  const stop = new AbortController();
  return runCli(["start", ...words], { env, signal: stop.signal, onLine: () => stop.abort() });
}

test("start wants keys, and says how the first one is made while there is none", async () => {
  const first = await start(["--data", "/tmp/mesh"]);
  fake.hasKey = true;
  const second = await start(["--data", "/tmp/mesh"]);

  expect(first).toEqual({
    exitCode: 0,
    stdout: ["Serving at http://127.0.0.1:7400"],
    stderr: ["No admin's key works yet: runmesh key create admin --bootstrap --data /tmp/mesh"],
  });
  expect(second).toMatchObject({ exitCode: 0, stderr: [] });
  expect(fake.started[0]).toEqual({
    host: "127.0.0.1",
    port: 7400,
    dataDir: "/tmp/mesh",
    authentication: "keys",
    logLevel: "info",
  });
});

test("start takes address, database and secret, and prints no password", async () => {
  const env = { RUNMESH_KEY_SECRET: "from-the-environment", RUNMESH_DATABASE_URL: DATABASE };

  const result = await start(["--host", "0.0.0.0", "--port", "80", "--json"], env);

  expect(result.stdout.map((line) => JSON.parse(line))).toEqual([
    { url: "http://0.0.0.0:80", database: "postgresql://me@db:5432/runmesh", authentication: "keys" },
  ]);
  expect(fake.started).toMatchObject([
    { host: "0.0.0.0", port: 80, databaseUrl: DATABASE, keySecret: "from-the-environment" },
  ]);
});

test("start goes through PgBouncer where one is named, and only before a database of one's own", async () => {
  const env = { RUNMESH_DATABASE_URL: DATABASE };
  const pgbouncer = "postgresql://me:password@bouncer:6432/runmesh";

  const through = await start(["--pgbouncer-url", pgbouncer], env);
  const byVariable = await start([], { ...env, RUNMESH_PGBOUNCER_URL: pgbouncer });
  const alone = await start(["--pgbouncer-url", pgbouncer]);

  expect([through, byVariable, alone].map((one) => one.exitCode)).toEqual([0, 0, 2]);
  expect(fake.started).toMatchObject(Array(2).fill({ databaseUrl: DATABASE, pgbouncerUrl: pgbouncer }));
});

test("the first key's secret is alone on stdout, and all else about it on stderr", async () => {
  const result = await runCli(["key", "create", "ops", "--bootstrap", "--database-url", DATABASE]);

  expect(result.exitCode).toBe(0);
  expect(result.stdout).toEqual(["rm_0123456789abcdef_secret"]);
  expect(result.stderr.join("\n")).toContain("key    0123456789abcdef");
  expect(result.stderr.join("\n")).not.toContain("_secret");
  expect(fake.bootstrapped).toEqual([{ databaseUrl: DATABASE, name: "ops", force: false }]);
});

test("a first key takes no roles, another key needs some", async () => {
  const first = await runCli(["key", "create", "a", "--bootstrap", "--role", "viewer", "--database-url", DATABASE]);
  const other = await runCli(["key", "create", "a"]);
  const unknown = await runCli(["key", "create", "a", "--role", "owner"]);

  expect([first.exitCode, other.exitCode, unknown.exitCode]).toEqual([2, 2, 2]);
  expect(unknown.stderr.join("\n")).toContain("viewer, operator, developer, worker, admin");
});
