// Needs: grpcurl
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { getCodeBlock, readCodeBlocks } from "../markdown.ts";
import { startExample } from "./example-process.ts";
import { readJsonObjects, runShellBlock } from "./shell-block.ts";

test("grpcurl starts a run and watches it to its end, knowing no schema", async () => {
  await using mesh = await startMesh();
  const blocks = readCodeBlocks("README.md");
  const example = await startExample("examples/first-workflow/order.ts", mesh.url);

  const [started] = readJsonObjects(await runShellBlock(getCodeBlock(blocks, "grpcurl", "StartRun"), mesh));
  const runId = String(started!.runId);
  const watch = getCodeBlock(blocks, "grpcurl", "WatchRun");
  const watched = readJsonObjects(await runShellBlock(watch, { url: mesh.url, runId }));
  await example.interrupt();

  expect(started).toMatchObject({ created: true, workflowVersion: 1 });
  expect(watched.at(-1)).toMatchObject({ change: { run: { id: runId, state: "STATE_SUCCEEDED" } } });
});
