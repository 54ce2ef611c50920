import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";

const AWAY = { timeout: 8_000, interval: 20 };

/** A run whose task has failed once, and goes before its limit again when its time comes. */
async function givenFailed(mesh: TestMesh, worker: MeshWorker, key: string): Promise<bigint> {
  const task = { key: "t", concurrency: { key, limit: 1 }, retry: { initialInterval: "1h" } };
  const runId = await mesh.given.run({ tasks: [task] });
  expect(await worker.fail(await worker.acquireOne())).toBe("accepted");
  return runId;
}

/** Makes its time come, so many seconds ago. */
const makeDue = (mesh: TestMesh, runId: bigint, secondsAgo: number) =>
  mesh.db.rows(
    "",
    `UPDATE scheduled SET due_at = clock_timestamp() - ${secondsAgo} * interval '1 second' WHERE task_id = $1`,
    [runId << 20n],
  );

const isReady = async (mesh: TestMesh, runId: bigint): Promise<boolean> =>
  (await mesh.db.rows("", "SELECT FROM ready WHERE task_id = $1", [runId << 20n])).length === 1;

test("a task that cannot be brought before its limit keeps no other from its own", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const broken = await givenFailed(mesh, worker, "broken");
  const sound = await givenFailed(mesh, worker, "sound");
  await mesh.db.rows(
    "",
    `CREATE FUNCTION refuse_slot() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'cannot be taken'; END $$`,
    [],
  );
  await mesh.db.rows(
    "",
    "CREATE TRIGGER refuse_slot BEFORE INSERT ON slot FOR EACH ROW WHEN (new.key = 'k:broken') EXECUTE FUNCTION refuse_slot()",
    [],
  );

  await makeDue(mesh, broken, 60);
  await makeDue(mesh, sound, 1);
  await expect.poll(() => isReady(mesh, sound), AWAY).toBe(true);
  expect(await isReady(mesh, broken)).toBe(false);

  await mesh.db.rows("", "DROP TRIGGER refuse_slot ON slot", []);
  await expect.poll(() => isReady(mesh, broken), AWAY).toBe(true);
});
