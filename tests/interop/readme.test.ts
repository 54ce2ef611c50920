import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getCodeBlock, readCodeBlocks } from "../markdown.ts";
import { type ExampleProcess, startExample } from "./example-process.ts";
import { readJsonObjects, runShellBlock } from "./shell-block.ts";

const blocks = readCodeBlocks("README.md");
const OUTPUT = /^T-C-\d+-\d+$/;

let mesh: TestMesh;
let example: ExampleProcess;

beforeAll(async () => {
  mesh = await startMesh();
  example = await startExample("examples/first-workflow/order.ts", mesh.url);
});

afterAll(async () => {
  const end = await example.interrupt();
  await mesh[Symbol.asyncDispose]();
  expect(end).toBe("SIGINT");
});

test("the first workflow runs to its result, and again to the same one", async () => {
  const again = await startExample("examples/first-workflow/order.ts", mesh.url);
  await again.interrupt();

  expect(example.line).toMatch(/^Run \d+ shipped as T-C-7-\d+\. The worker goes on until Ctrl-C\.$/);
  expect(again.line).toBe(example.line);
});

test("buf curl starts a run by reflection, watches it to its end and reads its events without a gap", async () => {
  const started = await runShellBlock(getCodeBlock(blocks, "--http2-prior-knowledge", "StartRun"), { url: mesh.url });
  const answer = readJsonObjects(started)[0]!;
  const run = { url: mesh.url, runId: String(answer.runId) };
  const watched = readJsonObjects(await runShellBlock(getCodeBlock(blocks, "buf curl", "WatchRun"), run));
  const told = readJsonObjects(await runShellBlock(getCodeBlock(blocks, "buf curl", "ListEvents"), run));

  expect(answer).toMatchObject({ created: true, workflowVersion: 1 });
  expect(watched.at(-1)).toMatchObject({ change: { run: { id: run.runId, state: "STATE_SUCCEEDED" } } });
  const events = (told[0] as { events: { sequence: string; type: string; taskKey?: string }[] }).events;
  expect(events.map(({ sequence, type, taskKey }) => [sequence, type, taskKey])).toEqual([
    ["1", "EVENT_TYPE_RUN_CREATED", undefined],
    ["2", "EVENT_TYPE_TASK_SUCCEEDED", "charge"],
    ["3", "EVENT_TYPE_TASK_SUCCEEDED", "ship"],
    ["4", "EVENT_TYPE_RUN_SUCCEEDED", undefined],
  ]);
});

test("curl starts a run that SUCCEEDS", async () => {
  const started = JSON.parse(await runShellBlock(getCodeBlock(blocks, "curl -s -H"), { url: mesh.url }));

  const run = await mesh.ended(BigInt(started.runId));

  expect(JSON.parse(Buffer.from(run.outputJson).toString())).toEqual({ tracking: expect.stringMatching(OUTPUT) });
});

test("a workflow registered as JSON is run by the same worker and shown by the command", async () => {
  await runShellBlock(getCodeBlock(blocks, "RegisterWorkflow"), { url: mesh.url });
  const ended = await runShellBlock(getCodeBlock(blocks, "runmesh run start"), { url: mesh.url });
  const runId = /\d+/.exec(ended)![0];
  const events = await runShellBlock(getCodeBlock(blocks, "runmesh run events"), { url: mesh.url, runId });

  expect(ended).toContain("SUCCEEDED");
  expect(
    events
      .trimEnd()
      .split("\n")
      .map((line) => line.trim().split(/\s+/)[0]),
  ).toEqual(["SEQ", "1", "2", "3", "4"]);
});
