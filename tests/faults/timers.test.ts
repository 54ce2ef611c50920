import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const AWAY = { timeout: 8_000, interval: 20 };

/** A run that is due in an hour, and one whose deadline is as far away. */
async function givenTimers(mesh: TestMesh): Promise<{ later: bigint; limited: bigint }> {
  const later = await mesh.given.run({}, { dueTime: timestampFromMs(Date.now() + 3_600_000) });
  const limited = await mesh.given.run({ deadline: "1h" });
  return { later, limited };
}

/** Makes the time of a run's timers come, so many seconds ago. */
async function makeDue(mesh: TestMesh, runId: bigint, secondsAgo: number): Promise<void> {
  const at = `clock_timestamp() - ${secondsAgo} * interval '1 second'`;
  await mesh.db.rows("", `UPDATE run_timer SET due_at = ${at} WHERE run_id = $1`, [runId]);
}

const stateOf = async (mesh: TestMesh, runId: bigint) => (await mesh.runs.getRun({ runId })).run!.state;

test("a run that another transaction holds keeps no other run from its start time or its deadline", async () => {
  await using mesh = await startMesh();
  const [held, free] = [await givenTimers(mesh), await givenTimers(mesh)];

  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "SELECT id FROM run WHERE id IN ($1, $2) FOR UPDATE", [held.later, held.limited]);
    for (const runId of [held.later, held.limited]) await makeDue(mesh, runId, 60);
    for (const runId of [free.later, free.limited]) await makeDue(mesh, runId, 1);
    await expect.poll(() => stateOf(mesh, free.later), AWAY).toBe(Run_State.RUNNING);
    await expect.poll(() => stateOf(mesh, free.limited), AWAY).toBe(Run_State.TIMED_OUT);
  });

  await expect.poll(() => stateOf(mesh, held.later), AWAY).toBe(Run_State.RUNNING);
  await expect.poll(() => stateOf(mesh, held.limited), AWAY).toBe(Run_State.TIMED_OUT);
});

test("runs that cannot be moved, more than are looked at together, keep no other from its time", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow();
  const dueTime = timestampFromMs(Date.now() + 3_600_000);
  const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: 220 }, () => ({ workflow, dueTime })) });
  const broken = results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));
  const sound = await givenTimers(mesh);
  await mesh.db.rows(
    "",
    `CREATE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'cannot be moved'; END $$`,
    [],
  );
  await mesh.db.rows(
    "",
    `CREATE TRIGGER refuse_move BEFORE UPDATE ON run FOR EACH ROW WHEN (old.due_at IS NOT NULL AND old.id <= ${broken.at(-1)})
    EXECUTE FUNCTION refuse_move()`,
    [],
  );

  for (const runId of broken) await makeDue(mesh, runId, 60);
  for (const runId of [sound.later, sound.limited]) await makeDue(mesh, runId, 1);
  await expect.poll(() => stateOf(mesh, sound.later), AWAY).toBe(Run_State.RUNNING);
  await expect.poll(() => stateOf(mesh, sound.limited), AWAY).toBe(Run_State.TIMED_OUT);

  await mesh.db.rows("", "DROP TRIGGER refuse_move ON run", []);
  await expect.poll(() => stateOf(mesh, broken[0]!), AWAY).toBe(Run_State.RUNNING);
  await expect.poll(() => stateOf(mesh, broken.at(-1)!), AWAY).toBe(Run_State.RUNNING);
});

test("a task that nobody started in time and that cannot be ended keeps no other waiting", async () => {
  await using mesh = await startMesh();
  const impatient = { tasks: [{ timeouts: { scheduleToStart: "1s" }, handler: "nobody" }] };
  const broken = await mesh.given.run(impatient);
  await mesh.db.rows(
    "",
    `CREATE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'cannot be moved'; END $$`,
    [],
  );
  await mesh.db.rows(
    "",
    `CREATE TRIGGER refuse_move BEFORE UPDATE ON run FOR EACH ROW WHEN (old.id = ${broken}) EXECUTE FUNCTION refuse_move()`,
    [],
  );
  const sound = await mesh.given.run(impatient);

  await expect.poll(() => stateOf(mesh, sound), AWAY).toBe(Run_State.FAILED);
  expect(await stateOf(mesh, broken)).toBe(Run_State.RUNNING);

  await mesh.db.rows("", "DROP TRIGGER refuse_move ON run", []);
  await expect.poll(() => stateOf(mesh, broken), AWAY).toBe(Run_State.FAILED);
});
