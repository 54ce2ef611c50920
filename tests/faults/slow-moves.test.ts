import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const HELD = 6;
const OTHERS = 20;
/** A slow move holds its run for seconds; what does not wait for it takes milliseconds, here on a machine that has other work. */
const PROMPT_MS = 1_000;

test("completions of other runs, with and without limits, are prompt while slow moves hold a dozen runs", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const { name: free } = await mesh.given.workflow();
  const { name: limited } = await mesh.given.workflow({ maxParallel: 1 });
  const runs = [free, limited].flatMap((workflow) => Array.from({ length: HELD + OTHERS }, () => ({ workflow })));
  await mesh.runs.startRuns({ runs });
  const tasks = (await worker.acquire(100)) as LeasedTask[];
  expect(tasks).toHaveLength(runs.length);
  const held = [free, limited].flatMap((workflow) => tasks.filter((task) => task.workflow === workflow).slice(0, HELD));
  const others = tasks.filter((task) => !held.includes(task));

  const slow: Promise<string>[] = [];
  const waits: number[] = [];
  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "SELECT FROM run WHERE id = ANY ($1::bigint[]) FOR UPDATE", [held.map(({ runId }) => runId)]);
    for (const task of held) slow.push(worker.complete(task));
    for (const task of others) {
      const sentAt = performance.now();
      expect(await worker.complete(task)).toBe("accepted");
      waits.push(performance.now() - sentAt);
    }
    const sentAt = performance.now();
    await mesh.given.run();
    await worker.complete(await worker.acquireOne());
    waits.push(performance.now() - sentAt);
  });

  expect(await Promise.all(slow)).toEqual(held.map(() => "accepted"));
  console.info(`the longest of ${waits.length} waits: ${Math.round(Math.max(...waits))} ms`);
  expect(Math.max(...waits)).toBeLessThan(PROMPT_MS);
});
