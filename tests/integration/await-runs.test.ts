import { connect, defineTask, defineWorkflow } from "@runmesh/client";
import { startMesh } from "@runmesh/testing/mesh";
import { createWorker } from "@runmesh/worker";
import { expect, test } from "vitest";
import { z } from "zod";

test("a wait for many runs answers those that have ended, with what they answer, and tells which are missing", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const counting = { tasks: [{ key: "count" }], output: '{"$ref":"#/tasks/count/output/n"}' };
  const runIds = [await mesh.given.run(counting), await mesh.given.run(counting), await mesh.given.run(counting)];
  const first = await worker.acquireOne();
  await worker.complete(first, '{"n":9007199254740993}');

  const answer = await mesh.runs.awaitRuns({ runIds: [...runIds, 999_999n], waitMs: 10_000 });

  expect(answer.runs.map((run) => [run.id, Buffer.from(run.outputJson).toString()])).toEqual([
    [first.runId, "9007199254740993"],
  ]);
  expect(answer.missingRunIds).toEqual([999_999n]);
  await worker.drain(() => '{"n":1}');
});

test("a wait for runs that go on ends with none at its time, and at the first end before", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runIds = [await mesh.given.run(), await mesh.given.run()];

  const none = await mesh.runs.awaitRuns({ runIds, waitMs: 50 });
  const waiting = mesh.runs.awaitRuns({ runIds, waitMs: 20_000 });
  await mesh.runs.cancelRun({ runId: runIds[1]! });
  const cancelled = await waiting;

  expect(none.runs).toEqual([]);
  expect(cancelled.runs.map((run) => [run.id, run.state])).toEqual([[runIds[1], 6]]);
  await worker.drain();
});

test("a wait names 1 to 1,000 runs and takes a minute at most", async () => {
  await using mesh = await startMesh();

  const none = mesh.runs.awaitRuns({ runIds: [] });
  await expect(none).rejects.toMatchObject({ reason: "INVALID_FIELD", field: "run_ids" });

  const many = mesh.runs.awaitRuns({ runIds: Array.from({ length: 1_001 }, (_, i) => BigInt(i + 1)) });
  await expect(many).rejects.toMatchObject({ reason: "INVALID_FIELD", field: "run_ids" });

  const long = mesh.runs.awaitRuns({ runIds: [1n], waitMs: 60_001 });
  await expect(long).rejects.toMatchObject({ reason: "INVALID_FIELD", field: "wait_ms" });
});

test("200 starts and results of one client take each run to its own result", async () => {
  await using mesh = await startMesh();
  const double = defineTask({
    name: "double",
    input: z.object({ n: z.number() }),
    output: z.object({ n: z.number() }),
  });
  const doubled = defineWorkflow({
    name: "doubled",
    input: z.object({ n: z.number() }),
    build: (w) => ({ n: w.task("double", double, { n: w.input.n }).output.n }),
  });
  const worker = createWorker({ url: mesh.url, slots: 50, handlers: [double.handle(({ n }) => ({ n: 2 * n }))] });
  await worker.start();
  const client = connect({ url: mesh.url });

  const results = await Promise.all(
    Array.from({ length: 200 }, async (_, n) => (await client.start(doubled, { n })).result()),
  );

  expect(results).toEqual(Array.from({ length: 200 }, (_, n) => ({ n: 2 * n })));
  await worker.stop();
  client.close();
});

test("without a wait every run that has ended by then is answered, each time", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runIds = [await mesh.given.run(), await mesh.given.run(), 999_999n];
  const first = await worker.acquireOne();
  await worker.complete(first);

  for (let time = 0; time < 20; time++) {
    const answer = await mesh.runs.awaitRuns({ runIds });

    expect(answer.runs.map((run) => run.id)).toEqual([first.runId]);
    expect(answer.missingRunIds).toEqual([999_999n]);
  }
  await worker.drain();
});
