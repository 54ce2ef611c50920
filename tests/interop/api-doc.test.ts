import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getCodeBlock, readCodeBlocks } from "../markdown.ts";
import { type ExampleProcess, startExample } from "./example-process.ts";
import { runShellBlock } from "./shell-block.ts";

const blocks = readCodeBlocks("docs/api.md");

let mesh: TestMesh;
let example: ExampleProcess;

beforeAll(async () => {
  mesh = await startMesh();
  example = await startExample("examples/first-workflow/order.ts", mesh.url);
});

afterAll(async () => {
  await example.interrupt();
  await mesh[Symbol.asyncDispose]();
});

test("curl starts a run once for its key, waits for its end, reads its output, and lists it by its label", async () => {
  const start = getCodeBlock(blocks, "order-21");
  const started = JSON.parse(await runShellBlock(start, { url: mesh.url }));
  const again = JSON.parse(await runShellBlock(start, { url: mesh.url }));
  const run = { url: mesh.url, runId: String(started.runId) };
  const output = await runShellBlock(getCodeBlock(blocks, "waitMs"), run);
  const listed = JSON.parse(await runShellBlock(getCodeBlock(blocks, "ListRuns"), run));

  const shown = JSON.parse(getCodeBlock(blocks, '"created":true').text);
  expect(Object.keys(started)).toEqual(Object.keys(shown));
  expect(started).toEqual({ runId: run.runId, created: true, workflowVersion: 1 });
  expect(again).toEqual({ runId: run.runId, workflowVersion: 1 });
  expect(JSON.parse(output)).toEqual({ tracking: expect.stringMatching(/^T-C-21-\d+$/) });
  expect(listed.runs).toMatchObject([{ id: run.runId, state: "STATE_SUCCEEDED", labels: { shop: "north" } }]);
});

test("what the API's page shows of an error is what a mesh answers", async () => {
  const answer = JSON.parse(await runShellBlock(getCodeBlock(blocks, "ordr", "curl"), { url: mesh.url }));

  const shown = JSON.parse(getCodeBlock(blocks, "REASON_NOT_FOUND").text);
  const { requestId, ...debug } = shown.details[0].debug;
  expect(answer).toMatchObject({ ...shown, details: [{ type: shown.details[0].type, debug }] });
  expect(answer.details[0].debug.requestId).toMatch(/^[0-9a-f-]{36}$/);
  expect(requestId).toMatch(/^[0-9a-f-]{36}$/);
});

test("a method that streams refuses a plain call, and says what to send", async () => {
  const response = await fetch(`${mesh.url}/runmesh.run.v1.RunService/WatchRun`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"runId": "1"}',
  });

  expect(response.status).toBe(415);
  expect(await response.json()).toMatchObject({ message: expect.stringContaining("application/connect+json") });
});
