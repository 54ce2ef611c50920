import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { useDatabase } from "@runmesh/testing/database";
import { expect, test } from "vitest";
import { type CliResult, runCli } from "../../sdk/cli/test/run-cli.ts";

const MAIN = fileURLToPath(new URL("../../sdk/cli/src/main.ts", import.meta.url));
const PAYLOAD = "payload-4711-of-a-customer";

interface Started {
  readonly url: string;
  readonly log: readonly string[];
  stop(): Promise<number | null>;
}

/** `runmesh start` as a process, and every line that it logs. */
async function start(databaseUrl: string, ...words: string[]): Promise<Started> {
  const args = ["--conditions=runmesh-source", MAIN, "start", "--json", "--port", "0", ...words];
  const env = { ...process.env, RUNMESH_DATABASE_URL: databaseUrl };
  const child: ChildProcess = spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  const log: string[] = [];
  createInterface({ input: child.stderr! }).on("line", (line) => log.push(line));
  const [line] = (await Promise.race([
    once(createInterface({ input: child.stdout! }), "line"),
    once(child, "exit").then(([code]) => Promise.reject(new Error(`it ended with ${code}: ${log.join("\n")}`))),
  ])) as [string];
  return {
    url: (JSON.parse(line) as { url: string }).url,
    log,
    async stop() {
      child.kill("SIGTERM");
      const [code] = (await once(child, "close")) as [number | null];
      return code;
    },
  };
}

test("a team's day with keys from the command line, and none of their secrets or payloads in the log", async () => {
  await using database = await useDatabase({ size: 2 });
  const mesh = await start(database.url, "--log-level", "debug");
  const run = (key: string, ...words: string[]) =>
    runCli(words, { env: { RUNMESH_URL: mesh.url, RUNMESH_API_KEY: key, RUNMESH_DATABASE_URL: database.url } });
  const secretOf = (result: CliResult) => {
    expect(result, result.stderr.join("\n")).toMatchObject({ exitCode: 0 });
    return result.stdout[0]!;
  };

  const admin = secretOf(await run("", "key", "create", "admin", "--bootstrap"));
  const again = await run("", "key", "create", "second", "--bootstrap");
  const viewer = secretOf(await run(admin, "key", "create", "eyes", "--role", "viewer", "--expires", "90d"));
  const developer = secretOf(await run(admin, "key", "create", "hands", "--role", "developer,operator"));
  const definition = '{"name": "order", "tasks": [{"key": "a", "handler": "nobody"}]}';
  const env = { RUNMESH_URL: mesh.url, RUNMESH_API_KEY: developer };
  const registered = await runCli(["workflow", "register", "-"], { env, stdin: definition });
  const started = await run(developer, "run", "start", "order", "--input", JSON.stringify(PAYLOAD), "--json");
  const { runId } = JSON.parse(started.stdout[0]!) as { runId: string };
  const forbidden = await run(viewer, "run", "cancel", runId);
  const cancelled = await run(developer, "run", "cancel", runId);
  const keys = (await run(admin, "key", "list", "--json")).stdout.map((line) => JSON.parse(line));
  const eyes = keys.find((key) => key.name === "eyes").id as string;
  const rotated = secretOf(await run(admin, "key", "rotate", eyes, "--overlap", "0s"));
  const old = await run(viewer, "run", "list");
  const fresh = await run(rotated, "run", "list");
  const revoked = await run(admin, "key", "revoke", eyes);
  const gone = await run(rotated, "run", "list");
  const audit = (await run(admin, "audit", "list", "--json")).stdout.map((line) => JSON.parse(line));
  const moves = (await run(admin, "audit", "list", "--target", `run/${runId}`, "--json")).stdout;
  const code = await mesh.stop();

  expect(again).toMatchObject({ exitCode: 4, stdout: [] });
  expect(registered).toMatchObject({ exitCode: 0 });
  expect([forbidden, cancelled, old, fresh, revoked, gone].map((one) => one.exitCode)).toEqual([4, 0, 4, 0, 0, 4]);
  expect(keys.map((key) => [key.name, key.roles])).toEqual([
    ["hands", ["OPERATOR", "DEVELOPER"]],
    ["eyes", ["VIEWER"]],
    ["admin", ["ADMIN"]],
  ]);
  expect(audit.map((entry) => `${entry.action} ${entry.result}`)).toEqual([
    "key.revoke done",
    "key.rotate done",
    "run.cancel cancelled",
    "run.cancel FORBIDDEN",
    "workflow.register done",
    "key.create done",
    "key.create done",
    "key.bootstrap done",
  ]);
  expect(audit.map((entry) => entry.origin)).toEqual([...Array(7).fill("127.0.0.1"), "database"]);
  expect(moves.map((line) => JSON.parse(line).principal)).toEqual([`key:${keys[0].id}`, `key:${eyes}`]);
  expect(code).toBe(0);
  for (const line of mesh.log.filter((one) => !one.startsWith("No admin's key"))) {
    expect(JSON.parse(line), line).toMatchObject({ service: "runmesh" });
  }
  const text = mesh.log.join("\n");
  expect(mesh.log.length).toBeGreaterThan(0);
  for (const secret of [PAYLOAD, ...[admin, viewer, developer, rotated].map((key) => key.slice(-43))]) {
    expect(text).not.toContain(secret);
  }
});

test("start refuses to serve other machines without keys", async () => {
  await using database = await useDatabase({ size: 1 });

  const started = start(database.url, "--host", "0.0.0.0", "--authentication", "local");

  await expect(started).rejects.toThrow(/it ended with 4.*FORBIDDEN/s);
});
