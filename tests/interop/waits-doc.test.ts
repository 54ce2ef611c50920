import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { ROOT } from "../markdown.ts";
import { startExample } from "./example-process.ts";

const run = promisify(execFile);

test("what the page of waits shows is what a mesh does", async () => {
  await using mesh = await startMesh();
  const worker = await startExample("examples/approval/worker.ts", mesh.url);

  const program = ["--conditions=runmesh-source", "examples/approval/start.ts"];
  const env = { ...process.env, RUNMESH_URL: mesh.url };
  const { stdout } = await run(process.execPath, program, { cwd: ROOT, env, timeout: 50_000 }).finally(() =>
    worker.interrupt(),
  );

  expect(worker.line).toBe("waiting for approvals");
  expect(stdout).toBe("paid T-o-7\n");
  const { runs } = await mesh.runs.listRuns({ filter: { labels: { order: "o-7" } } });
  expect(runs.map(({ workflow }) => workflow)).toEqual(["shipping"]);
});
