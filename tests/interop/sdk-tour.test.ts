import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getCodeBlock, ROOT, readCodeBlocks } from "../markdown.ts";
import { type ExampleProcess, startExample } from "./example-process.ts";
import { runShellBlock } from "./shell-block.ts";

const run = promisify(execFile);
const blocks = readCodeBlocks("docs/sdk.md");

let mesh: TestMesh;
let worker: ExampleProcess;

beforeAll(async () => {
  mesh = await startMesh();
  worker = await startExample("examples/sdk-tour/worker.ts", mesh.url);
});

afterAll(async () => {
  await worker.interrupt();
  await mesh[Symbol.asyncDispose]();
});

test("what the author's page says of results, events and errors is what a mesh answers", async () => {
  const stdout = await runShellBlock(getCodeBlock(blocks, "npm run program", "start.ts"), { url: mesh.url });

  const lines = stdout.trimEnd().split("\n");
  expect(lines.slice(lines.findIndex((line) => line.startsWith("1 "))).map((line) => line.trimEnd())).toEqual([
    "1 run.created",
    "2 task.succeeded reserve",
    "3 task.retrying notify",
    "4 task.dead notify",
    "5 task.succeeded pack",
    "6 run.succeeded",
    "A-lamp, note: none",
    "FAILED: reserve failed with SoldOut",
    "NOT_FOUND: Check the id or name, and the tenant of your credential.",
    "A-chair, note: none",
    "A-desk, note: none",
  ]);
});

test("the limited workflow of the author's page runs, and its schedule is put", async () => {
  const program = ["--conditions=runmesh-source", "examples/sdk-tour/schedule.ts"];
  const env = { ...process.env, RUNMESH_URL: mesh.url };
  const { stdout } = await run(process.execPath, program, { cwd: ROOT, env, timeout: 50_000 });

  const { schedule } = await mesh.schedules.getSchedule({ name: "restock-north" });
  const { version } = await mesh.workflows.getWorkflow({ name: "restock" });
  expect(stdout).toBe("A-lamp\n5\n");
  expect(schedule).toMatchObject({ cron: "30 2 * * *", timeZone: "Europe/Berlin", workflow: "restock" });
  expect(version?.definition).toMatchObject({ maxParallel: 10, concurrency: { key: '{"$ref":"#/input/shop"}' } });
});
