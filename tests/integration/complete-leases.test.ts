import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { completeLeases } from "@runmesh/store/complete-leases";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";

/** Runs of three tasks each that somebody's task waits for, all under leases: the leases of each run. */
async function givenChildren(mesh: TestMesh, worker: MeshWorker, count: number): Promise<LeasedTask[][]> {
  const tasks = [{ key: "a" }, { key: "b" }, { key: "c" }];
  for (let i = 0; i < count; i++) await mesh.given.run({ tasks });
  await mesh.db.rows("", "UPDATE run SET parent_task_id = 1", []);
  const leases = await worker.acquire(3 * count);
  return [...Map.groupBy(leases, ({ runId }) => runId).values()];
}

/** Which of the leases the merged statement ends. */
async function complete(mesh: TestMesh, worker: MeshWorker, leases: readonly LeasedTask[]): Promise<boolean[]> {
  const { sessionId } = worker.session;
  const completions = leases
    .map(({ taskId, fence }) => ({ taskId, fence, sessionId, output: undefined, dependents: [] }))
    .sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const { accepted } = await completeLeases(mesh.db, { tenantId: 1, completions, mayWait: true });
  return leases.map(({ taskId }) => accepted.has(taskId));
}

test("only what may end a child run is left to who tells its parent, however many runs a batch has", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const [one, two, three] = await givenChildren(mesh, worker, 3);

  const oneOfEach = await complete(mesh, worker, [one![0]!, two![0]!, three![0]!]);
  const lastAmongOthers = await complete(mesh, worker, [one![1]!, one![2]!, two![1]!]);
  const lastAlone = await complete(mesh, worker, [two![2]!]);

  expect(oneOfEach).toEqual([true, true, true]);
  expect(lastAmongOthers).toEqual([false, false, true]);
  expect(lastAlone).toEqual([false]);
  await mesh.db.rows("", "UPDATE run SET parent_task_id = NULL", []);
});
