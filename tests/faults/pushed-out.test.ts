import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { AWAY, givenSchedule, makeDue, runsOf, settled } from "../integration/given-schedule.ts";

const CANCEL_OLDEST = 2;
/** What a completion may be answered while its run is pushed out. */
const FAIR = ["accepted", "RUN_NOT_ACTIVE", "FENCE_STALE"];

/** Completes whatever comes until it is stopped; answers what completions were told, each once. */
async function completeAll(mesh: TestMesh): Promise<{ stop(): Promise<string[]> }> {
  const worker = await mesh.worker();
  const told = new Set<string>();
  let stopped = false;
  const work = (async () => {
    while (!stopped) {
      const tasks = await worker.acquire(8, { waitMs: 50 });
      for (const answer of await Promise.all(tasks.map((task) => worker.complete(task)))) told.add(answer);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await work;
      return [...told];
    },
  };
}

/** Transactions that the server ended because they waited for each other. */
const deadlocks = async (mesh: TestMesh) =>
  (
    await mesh.db.one<{ deadlocks: number }>(
      "",
      `WITH told AS (SELECT pg_stat_force_next_flush())
      SELECT deadlocks::int FROM told, pg_stat_database WHERE datname = current_database()`,
      [],
    )
  ).deadlocks;

test("reruns, triggers and completions under a limit that cancels the oldest never wait for each other", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({
    concurrency: { key: "k", limit: 2, onConflict: CANCEL_OLDEST },
    tasks: [{ concurrency: { key: "t", limit: 2 } }],
  });
  const name = await givenSchedule(mesh, { workflow });
  const { runId } = await mesh.runs.startRun({ workflow });
  const completing = await completeAll(mesh);

  const repeat = async (move: () => Promise<unknown>) => {
    for (let i = 0; i < 25; i++) await move();
  };
  await Promise.all([
    ...Array.from({ length: 4 }, () => repeat(() => mesh.runs.rerunRun({ runId }))),
    ...Array.from({ length: 2 }, () => repeat(() => mesh.schedules.triggerSchedule({ name }))),
  ]);
  const told = await completing.stop();

  expect(told.filter((answer) => !FAIR.includes(answer))).toEqual([]);
  expect(await deadlocks(mesh)).toBe(0);
});

test("ticks that cancel the runs before them wait for no completion that waits for them", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ tasks: [{ concurrency: { key: "t", limit: 4 } }] });
  const name = await givenSchedule(mesh, { workflow, overlap: Schedule_Overlap.CANCEL_PREVIOUS });
  const completing = await completeAll(mesh);

  for (let i = 1; i <= 15; i++) {
    await Promise.all(Array.from({ length: 6 }, () => mesh.schedules.triggerSchedule({ name })));
    await makeDue(mesh, name, 60 - i);
    await settled(mesh, name, (ticks) => ticks.started === i);
  }
  const told = await completing.stop();

  expect(told.filter((answer) => !FAIR.includes(answer))).toEqual([]);
  expect(await deadlocks(mesh)).toBe(0);
  expect((await runsOf(mesh, name)).length).toBe(15 * 7);
});

test("a run that begins later pushes out the oldest when it begins, and is pushed out by none before", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({
    concurrency: { key: "k", limit: 1, onConflict: CANCEL_OLDEST },
  });
  const start = async (dueMs?: number) =>
    (await mesh.runs.startRun({ workflow, ...(dueMs !== undefined && { dueTime: timestampFromMs(dueMs) }) })).runId;
  const states = (...runIds: bigint[]) =>
    Promise.all(runIds.map(async (runId) => (await mesh.runs.getRun({ runId })).run!.state));

  const first = await start();
  const later = await start(Date.now() + 3_600_000);
  const beside = await states(first, later);
  const second = await start();
  const after = await states(first, later, second);
  await mesh.db.rows("", "UPDATE run SET due_at = clock_timestamp() WHERE id = $1", [later]);
  await mesh.db.rows("", "UPDATE run_timer SET due_at = clock_timestamp() WHERE run_id = $1", [later]);
  await expect.poll(() => states(second, later), AWAY).toEqual([Run_State.CANCELLED, Run_State.RUNNING]);

  expect(beside).toEqual([Run_State.RUNNING, Run_State.PENDING]);
  expect(after).toEqual([Run_State.CANCELLED, Run_State.PENDING, Run_State.RUNNING]);
});
