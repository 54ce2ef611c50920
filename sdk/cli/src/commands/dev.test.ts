import { MeshError } from "@runmesh/client";
import { beforeEach, expect, test, vi } from "vitest";
import { runCli } from "../../test/run-cli.ts";
import type { Finding, StandaloneOptions } from "../standalone-package.ts";
import { withoutPassword } from "./dev.ts";

const fake = vi.hoisted(() => ({
  started: [] as unknown[],
  stopCount: 0,
  refusal: undefined as Error | undefined,
  findings: [] as unknown[],
  applied: [] as string[],
}));

vi.mock("../standalone-package.ts", () => ({
  loadStandalone: async () => ({
    async startStandalone(options: StandaloneOptions) {
      if (fake.refusal !== undefined) throw fake.refusal;
      fake.started.push(options);
      return {
        url: `http://127.0.0.1:${options.port}`,
        dataDir: options.dataDir,
        async stop() {
          fake.stopCount++;
        },
      };
    },
  }),
  loadMaintenance: async () => ({
    doctor: async () => fake.findings,
    migrate: async () => ({ applied: fake.applied }),
  }),
}));

beforeEach(() => {
  Object.assign(fake, { started: [], stopCount: 0, refusal: undefined, findings: [], applied: [] });
});

const DATABASE = "postgresql://me:secret@db:5432/runmesh";

test("dev prints URL, folder and a first command, and stops the mesh when it is told to", async () => {
  const stop = new AbortController();

  const result = await runCli(["dev", "--port", "7500", "--data", "/tmp/mesh"], {
    signal: stop.signal,
    onLine: (line) => line.startsWith("Ctrl-C") && stop.abort(),
  });

  expect(result).toMatchObject({ exitCode: 0, stderr: ["Stopping."] });
  expect(result.stdout).toContain("  URL       http://127.0.0.1:7500");
  expect(result.stdout).toContain("  folder    /tmp/mesh");
  expect(result.stdout.join("\n")).toContain("| runmesh workflow register - --url http://127.0.0.1:7500");
  expect(fake.started).toEqual([{ port: 7500, dataDir: "/tmp/mesh", logLevel: "warn" }]);
  expect(fake.stopCount).toBe(1);
});

test("dev on a database of one's own does not print its password", async () => {
  const stop = new AbortController();

  const result = await runCli(["dev", "--json"], {
    env: { RUNMESH_DATABASE_URL: DATABASE },
    signal: stop.signal,
    onLine: () => stop.abort(),
  });

  expect(result.stdout.map((line) => JSON.parse(line))).toEqual([
    { url: "http://127.0.0.1:7400", database: "postgresql://me@db:5432/runmesh" },
  ]);
  expect(fake.started).toEqual([{ port: 7400, logLevel: "warn", databaseUrl: DATABASE }]);
});

test.each(["dev", "doctor"])("%s takes a folder or a database, not both", async (command) => {
  const result = await runCli([command, "--data", "/tmp/mesh", "--database-url", DATABASE]);

  expect(result).toMatchObject({ exitCode: 2, stdout: [] });
  expect(fake.started).toEqual([]);
});

test("a second dev on a folder exits 4 and names where the first is", async () => {
  fake.refusal = new MeshError("ALREADY_EXISTS", "it serves at http://127.0.0.1:7400", { advice: "Use that one." });

  const result = await runCli(["dev"]);

  expect(result).toEqual({
    exitCode: 4,
    stdout: [],
    stderr: ["runmesh: ALREADY_EXISTS: it serves at http://127.0.0.1:7400", "  Use that one."],
  });
});

test("a port that is taken exits 4 and says so", async () => {
  const cause = Object.assign(new Error("listen"), { code: "EADDRINUSE", address: "127.0.0.1", port: 7400 });
  fake.refusal = new Error("gateway did not start", { cause });

  const result = await runCli(["dev"]);

  expect(result).toEqual({
    exitCode: 4,
    stdout: [],
    stderr: ["runmesh: ALREADY_EXISTS: 127.0.0.1:7400 is taken by another program", "  Give another --port, or 0."],
  });
});

test.each([
  [[], 0, ["All is well."]],
  [[finding("warning")], 0, ["warning: orphan: 2", "  task 7", "  Look at it."]],
  [[finding("warning"), finding("error")], 1, expect.arrayContaining(["error: orphan: 2"])],
])("doctor exits by the worst finding", async (findings, exitCode, stdout) => {
  fake.findings = findings;

  const result = await runCli(["doctor", "--database-url", DATABASE]);

  expect(result).toMatchObject({ exitCode, stdout });
});

test("migrate names what it applied", async () => {
  fake.applied = ["1_init"];

  const people = await runCli(["migrate", "--database-url", DATABASE]);
  const script = await runCli(["migrate", "--json"], { env: { RUNMESH_DATABASE_URL: DATABASE } });

  expect(people).toMatchObject({ exitCode: 0, stdout: ["Applied 1_init"] });
  expect(script.stdout).toEqual(['{"applied":["1_init"]}']);
});

test("a database that is away exits 3 and is not taken for the mesh", async () => {
  fake.refusal = Object.assign(new Error("The database cannot be reached for now."), {
    name: "MeshError",
    reason: "UNAVAILABLE",
    violations: [],
    advice: "Repeat later.",
  });

  const result = await runCli(["dev"]);

  expect(result).toEqual({
    exitCode: 3,
    stdout: [],
    stderr: ["runmesh: UNAVAILABLE: The database cannot be reached for now.", "  Repeat later."],
  });
});

test.each([
  ["28P01", "UNAUTHENTICATED", "Correct the database URL: --database-url or RUNMESH_DATABASE_URL."],
  ["3D000", "NOT_FOUND", "Make it with `npx runmesh migrate`, or correct the database URL."],
  ["42501", "FORBIDDEN", "Grant it to the role of the database URL, or use the database's owner."],
])("what PostgreSQL refuses with %s exits 4 with what to correct, and no stack", async (code, reason, advice) => {
  const cause = Object.assign(new Error("what PostgreSQL said"), { code, severity: "FATAL" });
  fake.refusal = new Error("pools did not start", { cause });

  const result = await runCli(["dev"], { env: { npm_command: "exec" } });

  expect(result).toEqual({
    exitCode: 4,
    stdout: [],
    stderr: [`runmesh: ${reason}: PostgreSQL refuses: what PostgreSQL said`, `  ${advice}`],
  });
});

test("a certificate that is not taken exits 4 with how its CA is named, and is not taken for a database that is away", async () => {
  const cause = Object.assign(new Error("self-signed certificate"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
  fake.refusal = Object.assign(new Error("The database cannot be reached for now.", { cause }), {
    name: "MeshError",
    reason: "UNAVAILABLE",
    violations: [],
    advice: "Repeat later.",
  });

  const result = await runCli(["dev"]);

  expect(result.exitCode).toBe(4);
  expect(result.stderr).toEqual([
    "runmesh: UNAUTHENTICATED: the database's certificate is not accepted: self-signed certificate",
    expect.stringContaining("?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem"),
  ]);
});

test.each([
  ["postgres://u:pa#ss@db/runmesh", "is no PostgreSQL URL", "%23 for #"],
  ["postgres://u@db/runmesh?sslmode=verify", "has an sslmode that is not known: verify", "sslmode=verify-full"],
  [
    "postgres://u@db/runmesh?sslmode=verify-full&sslrootcert=/absent.pem",
    "has an sslrootcert that cannot be read: /absent.pem",
    "PEM",
  ],
])("the database URL %s is wrong usage, told with what to write", async (url, message, advice) => {
  const result = await runCli(["migrate", "--database-url", url]);

  expect(result.exitCode).toBe(2);
  expect(result.stderr).toEqual([`runmesh: WRONG_USAGE: the database URL ${message}`, expect.stringContaining(advice)]);
});

test("a folder that another mesh has is told as it is, without advice for callers", async () => {
  const refusal = { name: "MeshError", reason: "ALREADY_EXISTS", violations: [], advice: "Use another name." };
  fake.refusal = Object.assign(
    new Error("Process 7 already runs on /data; it serves at http://127.0.0.1:7400."),
    refusal,
  );

  const result = await runCli(["dev"]);

  expect(result).toEqual({
    exitCode: 4,
    stdout: [],
    stderr: ["runmesh: ALREADY_EXISTS: Process 7 already runs on /data; it serves at http://127.0.0.1:7400."],
  });
});

test("a database that cannot be reached is told with what stood in the way", async () => {
  const refused = new AggregateError([new Error("connect ECONNREFUSED 127.0.0.1:5432")]);
  const cause = Object.assign(new Error("The database cannot be reached for now.", { cause: refused }), {
    name: "MeshError",
    reason: "UNAVAILABLE",
    violations: [],
    advice: "Repeat later.",
  });
  fake.refusal = cause;

  const result = await runCli(["dev"]);

  expect(result).toEqual({
    exitCode: 3,
    stdout: [],
    stderr: [
      "runmesh: UNAVAILABLE: the database cannot be reached: connect ECONNREFUSED 127.0.0.1:5432",
      "  Check that PostgreSQL is up, and the database URL.",
    ],
  });
});

test("a password is taken out of a URL, in whatever place", () => {
  expect(withoutPassword("postgresql://me:secret@db/x?password=secret")).toBe("postgresql://me@db/x");
  expect(withoutPassword("host=db password=secret")).toBe("yours");
});

function finding(severity: Finding["severity"]): Finding {
  return { check: "orphan", severity, count: 2, examples: ["task 7"], advice: "Look at it." };
}
