import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { ROOT } from "../markdown.ts";
import { startExample } from "./example-process.ts";

const run = promisify(execFile);

test("what the author's page says of results, events and errors is what a mesh answers", async () => {
  await using mesh = await startMesh();
  const worker = await startExample("examples/sdk-tour/worker.ts", mesh.url);

  const program = ["--conditions=runmesh-source", "examples/sdk-tour/start.ts"];
  const env = { ...process.env, RUNMESH_URL: mesh.url };
  const { stdout } = await run(process.execPath, program, { cwd: ROOT, env, timeout: 50_000 });
  await worker.interrupt();

  expect(
    stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.trimEnd()),
  ).toEqual([
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
