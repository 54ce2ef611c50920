import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getCodeBlock, ROOT, readCodeBlocks } from "../markdown.ts";
import { type ExampleProcess, startExample } from "./example-process.ts";
import { runShellBlock } from "./shell-block.ts";

let mesh: TestMesh;
let example: ExampleProcess;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "runmesh-cli-doc-"));
  mesh = await startMesh();
  example = await startExample("examples/first-workflow/order.ts", mesh.url);
});

afterAll(async () => {
  await example.interrupt();
  await mesh[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

test("the first commands of the command's page register its definition, run it, and import a graph", async () => {
  const blocks = readCodeBlocks("docs/cli.md");
  writeFileSync(join(folder, "order.json"), getCodeBlock(blocks, '"max_attempts"').text);
  copyFileSync(join(ROOT, "examples/wfinstances/montage-chameleon-2mass-005d-001.json"), join(folder, "graph.json"));
  const block = getCodeBlock(blocks, "runmesh dev  ");
  const text = block.text.replace(/^runmesh dev .*\n/, "");

  const stdout = await runShellBlock({ ...block, text }, { url: mesh.url, cwd: folder });

  const { runs } = await mesh.runs.listRuns({});
  expect(runs.map((run) => `${run.workflow}@${run.workflowVersion}`)).toEqual(["montage@1", "order@2", "order@1"]);
  expect(stdout.match(/^state +SUCCEEDED$/gm)).toHaveLength(2);
});

test("bulk moves of the command's page answer how many they moved", async () => {
  const block = getCodeBlock(readCodeBlocks("docs/cli.md"), "run retry --workflow order");

  expect(await runShellBlock(block, { url: mesh.url, cwd: folder })).toBe("0 runs retried\n");
});

test("the commands of the page of schedules put one, show it, trigger it, and list its runs", async () => {
  const block = getCodeBlock(readCodeBlocks("docs/schedules.md"), "nightly-order");

  const stdout = await runShellBlock(block, { url: mesh.url, cwd: folder });

  const { schedule } = await mesh.schedules.getSchedule({ name: "nightly-order" });
  expect(schedule).toMatchObject({ cron: "30 2 * * *", timeZone: "Europe/Berlin", workflow: "order" });
  expect(stdout).toContain("30 2 * * * in Europe/Berlin");
  expect(stdout).toMatch(/^state +SUCCEEDED$/m);
});
