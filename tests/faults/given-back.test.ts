/** What docs/sdk.md says of a task with `maxAttempts: 1` when the worker that holds it stops in order. */
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { listAttempts, tellAttempts } from "./history.ts";
import { startWorkerProcess, type WorkerProcess } from "./worker-process.ts";

const LONG = { timeout: 20_000, interval: 25 };
const task = (key: string, ms: number, priority: number) => ({
  key,
  handler: "sleep",
  params: JSON.stringify({ ms }),
  priority,
  retry: { maxAttempts: 1 },
});

const begun = ({ told }: WorkerProcess) => told.flatMap(({ did, key }) => (did === "started" ? [key] : []));

/** Whether the handler of each attempt had begun. */
async function tellStarts(mesh: TestMesh, runId: bigint, key: string): Promise<boolean[]> {
  const { task } = await mesh.tasks.getTask({ runId, key });
  const attempts = await listAttempts(mesh, runId);
  return attempts.filter(({ taskId }) => taskId === task!.id).map(({ startTime }) => startTime !== undefined);
}

test("a task that may run once and had not begun when its worker stopped runs once, on another", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [task("long", 1_500, 1), task("waiting", 0, 0)] });
  await using stopping = await startWorkerProcess({ url: mesh.url, slots: 1, prefetch: 1 });
  await expect.poll(() => begun(stopping), LONG).toEqual(["long"]);
  const countLeases = () => mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM lease", []);
  await expect.poll(countLeases, LONG).toEqual({ n: 2 });

  stopping.kill("SIGTERM");
  await stopping.exited;
  await using other = await startWorkerProcess({ url: mesh.url });
  const run = await mesh.ended(runId);

  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect([begun(stopping), begun(other)]).toEqual([["long"], ["waiting"]]);
  expect(await tellAttempts(mesh, runId, "waiting")).toEqual(["RELEASED", "SUCCEEDED"]);
  expect(await tellStarts(mesh, runId, "waiting")).toEqual([false, true]);
});

test("a task that may run once and still ran at the end of its worker's grace begins again on another", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [task("long", 3_000, 0)] });
  await using stopping = await startWorkerProcess({ url: mesh.url, gracefulStopMs: 100 });
  await expect.poll(() => begun(stopping), LONG).toEqual(["long"]);

  stopping.kill("SIGTERM");
  await stopping.exited;
  await using other = await startWorkerProcess({ url: mesh.url });
  const run = await mesh.ended(runId);

  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(stopping.told).toContainEqual({ did: "aborted", key: "long", cause: "stopping" });
  expect(begun(other)).toEqual(["long"]);
  expect(await tellAttempts(mesh, runId, "long")).toEqual(["RELEASED", "SUCCEEDED"]);
  expect(await tellStarts(mesh, runId, "long")).toEqual([true, true]);
});
