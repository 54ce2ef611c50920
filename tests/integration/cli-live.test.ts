import { connect, defineTask, defineWorkflow } from "@runmesh/client";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { createWorker } from "@runmesh/worker";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { type CliResult, runCli } from "../../sdk/cli/test/run-cli.ts";

const decide = defineTask({ name: "decide", input: z.object({}), output: z.object({ by: z.string() }) });
const approval = defineWorkflow({
  name: "approval",
  input: z.object({}),
  build: (w) => ({ by: w.task("decide", decide, {}).output.by }),
});
const decision = z.object({ by: z.string(), cents: z.number() });

let mesh: TestMesh;
beforeAll(async () => {
  mesh = await startMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

const cli = (words: readonly string[], setting: Parameters<typeof runCli>[1] = {}) =>
  runCli(words, { ...setting, env: { RUNMESH_URL: mesh.url } });

test("run signal wakes the handler that waits for it, with its value, and once for its request id", async () => {
  const handler = decide.handle(async (_, ctx) => {
    const first = await ctx.waitForSignal("decision", { schema: decision, timeout: "1m" });
    const second = await ctx.waitForSignal("decision", { schema: decision, timeout: "1m" });
    return { by: `${first?.by} ${second?.by}` };
  });
  const worker = createWorker({ url: mesh.url, handlers: [handler], workflows: [approval] });
  await worker.start();
  try {
    const run = await connect({ url: mesh.url }).start(approval, {});
    const signal = (value: string, ...more: string[]) =>
      cli(["run", "signal", run.id, "decision", "--value", value, ...more], { stdin: '{"by": "bea", "cents": 2}' });

    const sent = await signal('{"by": "ada", "cents": 1}', "--request-id", "r-1");
    const again = await signal('{"by": "ada", "cents": 1}', "--request-id", "r-1");
    const piped = await signal("-", "--json");
    const { by } = await run.result();
    const late = await signal('{"by": "eve", "cents": 3}');

    expect([sent, again]).toEqual(
      Array(2).fill({ exitCode: 0, stdout: [`Sent decision to run ${run.id}`], stderr: [] }),
    );
    expect(piped.stdout).toEqual([`{"runId":"${run.id}","name":"decision"}`]);
    expect(by).toBe("ada bea");
    expect(late).toMatchObject({ exitCode: 4, stdout: [] });
    expect(late.stderr[0]).toBe(`runmesh: ILLEGAL_MOVE: run ${run.id} has ended: it is SUCCEEDED`);
  } finally {
    await worker.stop();
  }
});

test("run watch --all shows what is there, then each run that is new and each that moves, until Ctrl-C", async () => {
  const old = await mesh.given.run({ name: "old" });
  const stop = new AbortController();
  const seen: string[] = [];
  const told = Promise.withResolvers<void>();
  let fresh = 0n;

  const watching = cli(["run", "watch", "--all", "--limit", "5"], {
    signal: stop.signal,
    onLine(line) {
      seen.push(line);
      if (line === `${old}  RUNNING    0/1  old`) told.resolve();
      if (fresh !== 0n && line.startsWith(`${fresh}  CANCELLED`)) stop.abort();
    },
  });
  await told.promise;
  fresh = await mesh.given.run({ name: "new" });
  await expect.poll(() => seen).toContain(`${fresh}  RUNNING    0/1  new`);
  await mesh.runs.cancelRun({ runId: fresh });
  const { exitCode, stderr } = await watching;

  expect({ exitCode, stderr }).toEqual({ exitCode: 130, stderr: [] });
  expect(seen.at(-1)).toBe(`${fresh}  CANCELLED  1/1  new`);
});

test("run watch of a filter tells that a run has left it, and to scripts as JSON", async () => {
  const runId = await mesh.given.run({ name: "filtered" });
  const stop = new AbortController();
  const first = Promise.withResolvers<void>();

  const watching = cli(["run", "watch", "--workflow", "filtered", "--state", "running", "--json"], {
    signal: stop.signal,
    onLine: (line) => (line.startsWith('{"left"') ? stop.abort() : first.resolve()),
  });
  await first.promise;
  await mesh.runs.cancelRun({ runId });
  const lines = parse(await watching);

  expect(lines).toMatchObject([
    { run: { id: String(runId), state: "RUNNING" } },
    { left: { runId: String(runId), cause: "FILTER", run: { state: "CANCELLED" } } },
  ]);
});

// biome-ignore lint/suspicious/noExplicitAny: the shapes are what is tested.
function parse(result: CliResult): any[] {
  return result.stdout.map((line) => JSON.parse(line));
}
