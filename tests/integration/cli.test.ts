import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startStandalone } from "@runmesh/standalone/standalone";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, onTestFinished, test } from "vitest";
import { type CliResult, runCli } from "../../sdk/cli/test/run-cli.ts";

const GRAPH = fileURLToPath(
  new URL("../../examples/wfinstances/montage-chameleon-2mass-005d-001.json", import.meta.url),
);
const BIG = '{"n":9007199254740993,"huge":1e400}';

test("an imported graph runs to its end, and every look at it agrees", async () => {
  await using mesh = await startMesh();
  const cli = (...words: string[]) => runCli([...words, "--json", "--url", mesh.url]);

  const ran = await cli("import", "wfformat", GRAPH, "--run", "--simulate", "0");
  const [run] = parse(ran);
  const events = parse(await cli("run", "events", run.id));
  const watched = parse(await cli("run", "watch", run.id));
  const tasks = parse(await cli("task", "list", run.id));
  const [task] = parse(await cli("task", "show", run.id, "mAdd_ID0000056"));
  const doctor = await runCli(["doctor", "--json", "--database-url", mesh.databaseUrl]);

  expect(ran).toMatchObject({ exitCode: 0, stderr: [] });
  expect(run).toMatchObject({ workflow: "montage", state: "SUCCEEDED", tasks: { total: 58, succeeded: 58 } });
  expect(events.map((event) => event.sequence)).toEqual(events.map((_, at) => String(at + 1)));
  expect(events.at(-1)).toMatchObject({ type: "RUN_SUCCEEDED", sequence: run.sequence });
  expect(watched.map((line) => Object.keys(line)[0])).toEqual(["snapshot", "run"]);
  expect(tasks.filter((one) => one.state === "SUCCEEDED")).toHaveLength(58);
  expect(task).toMatchObject({ params: { runtimeMs: 184, program: "mAdd" }, attempts: [{ outcome: "SUCCEEDED" }] });
  expect(doctor.stdout).toEqual(['{"findings":[]}']);
});

test("a definition and an input come back digit for digit", async () => {
  await using mesh = await startMesh();
  const setting = {
    env: { RUNMESH_URL: mesh.url },
    stdin: `{"name":"big","tasks":[{"key":"a","handler":"h","params":${BIG}}]}`,
  };

  const registered = await runCli(["workflow", "register", "-", "--json"], setting);
  const again = await runCli(["workflow", "register", "-", "--json"], setting);
  const shown = await runCli(["workflow", "show", "big@1", "--json"], setting);
  const started = await runCli(["run", "start", "big", "--input", BIG, "--key", "k", "--json"], setting);
  const runId = parse(started)[0].runId;
  const run = await runCli(["run", "show", runId, "--json"], setting);
  const task = await runCli(["task", "show", runId, "a", "--json"], setting);

  expect(parse(registered)).toMatchObject([{ workflow: "big", version: 1, created: true }]);
  expect(parse(again)).toMatchObject([{ version: 1, created: false }]);
  expect(shown.stdout[0]).toContain(`"params":${BIG}`);
  expect(run.stdout[0]).toContain(`"input":${BIG}`);
  expect(task.stdout[0]).toContain(`"params":${BIG}`);
});

test("a cancelled run ends a waiting start with exit code 1", async () => {
  await using mesh = await startMesh();
  const setting = { env: { RUNMESH_URL: mesh.url }, stdin: '{"name":"w","tasks":[{"key":"a","handler":"nobody"}]}' };
  await runCli(["workflow", "register", "-"], setting);

  const waiting = runCli(["run", "start", "w", "--key", "k", "--wait", "--json"], setting);
  const runId = await findRun(setting.env);
  const cancelled = await runCli(["run", "cancel", runId, "--comment", "enough", "--json"], setting);

  expect(parse(cancelled)).toMatchObject([{ id: runId, state: "CANCELLED" }]);
  expect(await waiting).toMatchObject({ exitCode: 1, stderr: [] });
});

test("runs of a filter are cancelled, retried and rerun, and say why they do not run", async () => {
  await using mesh = await startMesh();
  const { name } = await mesh.given.workflow({ name: "order", tasks: [{ key: "charge", handler: "charge" }] });
  const cli = (...words: string[]) => runCli([...words, "--url", mesh.url]);
  for (let i = 0; i < 3; i++) await cli("run", "start", name);
  const [{ id }] = parse(await cli("run", "list", "--json"));

  const tasks = await cli("task", "list", id);
  const shown = parse(await cli("run", "show", id, "--json"));
  const careful = await cli("run", "cancel", "--workflow", name);
  const cancelled = await cli("run", "cancel", "--workflow", name, "--yes");
  const retried = parse(await cli("run", "retry", "--state", "cancelled", "--yes", "--json"));
  const rerun = parse(await cli("run", "rerun", id, "--newest", "--json"));
  const states = parse(await cli("run", "list", "--json")).map((run) => [run.state, run.rerunOf]);

  expect(tasks.stdout[1]).toContain("no worker has the handler charge since 20");
  expect(shown[0].notRunning).toMatchObject({
    noWorker: { missing: "HANDLER", handler: "charge", queue: "default" },
    taskKey: "charge",
  });
  expect(careful).toMatchObject({ exitCode: 2, stdout: [] });
  expect(cancelled.stdout).toEqual(["3 runs cancelled"]);
  expect(retried).toEqual([{ movedCount: 3, passedOverCount: 0 }]);
  expect(rerun).toMatchObject([{ created: true, workflowVersion: 1 }]);
  expect(states).toEqual([["RUNNING", id], ...Array(3).fill(["RUNNING", undefined])]);
});

test("what the mesh refuses exits 4 with its reason", async () => {
  await using mesh = await startMesh();
  const circle = '{"name":"c","tasks":[{"key":"a","handler":"h","depends_on":["a"]}]}';
  const setting = { env: { RUNMESH_URL: mesh.url }, stdin: circle };

  const register = await runCli(["workflow", "register", "-", "--json"], setting);
  const show = await runCli(["run", "show", "7", "--json"], setting);

  expect(register.exitCode).toBe(4);
  expect(JSON.parse(register.stderr[0]!)).toMatchObject({
    error: { reason: "GRAPH_CYCLE", violations: [{ field: "definition.tasks[0].depends_on[0]" }] },
  });
  expect(show.exitCode).toBe(4);
  expect(JSON.parse(show.stderr[0]!)).toMatchObject({ error: { reason: "NOT_FOUND" } });
});

test("a second mesh on a folder is refused with the first one's URL, and the doctor looks beside it", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "runmesh-cli-"));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const first = await startStandalone({ dataDir, port: 0, logLevel: "silent", postgres: { fast: true } });

  try {
    const second = await runCli(["dev", "--data", dataDir, "--port", "0"]);
    const doctor = await runCli(["doctor", "--data", dataDir]);

    expect(second).toMatchObject({ exitCode: 4, stdout: [] });
    expect(second.stderr[0]).toContain(first.url);
    expect(doctor).toEqual({ exitCode: 0, stdout: ["All is well."], stderr: [] });
  } finally {
    await first.stop();
  }
});

// biome-ignore lint/suspicious/noExplicitAny: the shapes are what is tested.
function parse(result: CliResult): any[] {
  return result.stdout.map((line) => JSON.parse(line));
}

/** The one run there is, as soon as it is there. */
async function findRun(env: Record<string, string>): Promise<string> {
  for (;;) {
    const [run] = parse(await runCli(["run", "list", "--key", "k", "--json"], { env }));
    if (run !== undefined) return run.id;
  }
}
