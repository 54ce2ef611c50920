import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { OnConflict } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

/** The scheduler's loop rests for 200 ms; what a test waits beyond that is the machine's. */
const SOON = { timeout: 5_000, interval: 10 };

/** The `nth` time that `when` comes to pass, whoever made it do so runs into `what`. */
async function failOnce(mesh: TestMesh, when: string, what: string, nth = 1): Promise<void> {
  await mesh.db.rows("", "CREATE SEQUENCE failed_once", []);
  await mesh.db.rows(
    "",
    `CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('failed_once') = ${nth} THEN ${what}; END IF;
      RETURN NEW;
    END $$`,
    [],
  );
  await mesh.db.rows("", `CREATE TRIGGER fail_once BEFORE ${when} EXECUTE FUNCTION fail_once()`, []);
}

const ADMISSION = "UPDATE OF active ON run_slot FOR EACH ROW";
const CANCEL = "UPDATE OF state ON run FOR EACH ROW WHEN (NEW.state = 6)";
const CRASH = "PERFORM pg_terminate_backend(pg_backend_pid())";
const FAULT = "RAISE EXCEPTION 'a fault'";

const runCount = async (mesh: TestMesh) =>
  (await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM run", [])).n;
const runningCount = async (mesh: TestMesh) =>
  (await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM run WHERE state = 2", [])).n;

const waitingForLocks = (mesh: TestMesh) =>
  mesh.db.rows(
    "",
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    [],
  );

for (const [how, what] of [
  ["the connection is killed", CRASH],
  ["a statement fails", FAULT],
] as const) {
  test(`starts are answered, once, and begin all the same where ${how} between them and their admission`, async () => {
    await using mesh = await startMesh();
    const worker = await mesh.worker();
    const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "k", limit: 2 } });
    await failOnce(mesh, ADMISSION, what);

    const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: 5 }, () => ({ workflow })) });

    const runIds = results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));
    expect(await runCount(mesh)).toBe(5);
    const cutOffAt = performance.now();
    await expect.poll(() => runningCount(mesh), SOON).toBe(2);
    console.info(`begun ${Math.round(performance.now() - cutOffAt)} ms after the start was answered`);
    for (let done = 0; done < 5; done++) await worker.complete(await worker.acquireOne());
    for (const runId of runIds) expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
  });
}

test("a child is started once and begins, where its admission fails inside of the start's transaction", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "k", limit: 1 } });
  await mesh.runs.startRun({ workflow });
  await worker.drain();
  await mesh.given.run();
  const parent = await worker.acquireOne();
  // As after a run that waited and was cancelled: the child is not let in by its start, though there is room.
  await mesh.db.rows("", "UPDATE slot_count SET waits = true", []);
  await failOnce(mesh, ADMISSION, FAULT);

  const call = { ...worker.session, taskId: parent.taskId, fence: parent.fence, position: 0, occurrence: 0 };
  const child = await mesh.runs.startChildRun({ ...call, start: { workflow } });
  const again = await mesh.runs.startChildRun({ ...call, start: { workflow } });

  expect([child.created, again.created, again.runId]).toEqual([true, false, child.runId]);
  expect(await runCount(mesh)).toBe(3);
  await worker.complete(await worker.acquireOne());
  await worker.complete(parent);
  expect((await mesh.ended(child.runId)).state).toBe(Run_State.SUCCEEDED);
  expect(await mesh.db.rows("", "SELECT last_value::int AS tries FROM failed_once", [])).toEqual([{ tries: 2 }]);
});

test("starts that were merged are each made once, and push out the oldest, where one of the cancels fails", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({
    concurrency: { key: "k", limit: 2, onConflict: OnConflict.CANCEL_OLDEST },
  });
  // Without a request id, which clients of the SDK send.
  const start = () => mesh.post("runmesh.run.v1.RunService/StartRun", { workflow });
  for (let i = 0; i < 2; i++) await start();
  await failOnce(mesh, CANCEL, FAULT, 3);

  const starting: ReturnType<typeof start>[] = [];
  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "SELECT FROM slot_count WHERE key = 'w:k' FOR UPDATE", []);
    // Two batches of one start each wait for the key, the others meanwhile for these.
    for (let i = 1; i <= 2; i++) {
      starting.push(start());
      await expect.poll(() => waitingForLocks(mesh), SOON).toHaveLength(i);
    }
    for (let i = 0; i < 10; i++) starting.push(start());
    for (let i = 0; i < 10; i++) await mesh.post("runmesh.run.v1.RunService/ListRuns", {});
  });
  const started = await Promise.all(starting);

  expect(new Set(started.map(({ json }) => (json as { runId: string }).runId)).size).toBe(12);
  expect(await runCount(mesh)).toBe(14);
  await expect.poll(() => runningCount(mesh), SOON).toBe(2);
  expect(await mesh.db.rows("", "SELECT id FROM run WHERE state NOT IN (2, 6)", [])).toEqual([]);
});

test("a retry that comes before its limit again while its run is cancelled leaves nothing behind", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const limited = { tasks: [{ concurrency: { key: "k", limit: 1 }, retry: { initialInterval: "1h", jitter: 0 } }] };
  const failing = await mesh.given.run(limited);
  await mesh.given.run(limited);
  await worker.fail(await worker.acquireOne());
  const holder = await worker.acquireOne();

  let cancelled: Promise<unknown> | undefined;
  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "SELECT FROM slot_count WHERE key = 'k:k' FOR UPDATE", []);
    await mesh.db.rows("", "UPDATE scheduled SET due_at = clock_timestamp()", []);
    await expect.poll(() => waitingForLocks(mesh), SOON).toHaveLength(1);
    cancelled = mesh.runs.cancelRun({ runId: failing });
    await expect.poll(() => waitingForLocks(mesh), SOON).toHaveLength(2);
  });
  await cancelled;

  for (const place of ["held", "scheduled", "ready"]) {
    expect(await mesh.db.rows("", `SELECT task_id FROM ${place}`, [])).toEqual([]);
  }
  expect(await worker.complete(holder)).toBe("accepted");
});

test("a limit that refuses counts no start that was made before, nor the twin of one in the batch", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const { name: workflow } = await mesh.given.workflow({
    concurrency: { key: "k", limit: 1, onConflict: OnConflict.REFUSE },
  });
  const start = async (...keys: string[]) => {
    const runs = keys.map((idempotencyKey) => ({ workflow, idempotencyKey }));
    const { results } = await mesh.runs.startRuns({ runs });
    return results.map(({ result }) => (result.case === "started" ? result.value.created : result.case));
  };
  const first = await start("a");
  await worker.complete(await worker.acquireOne());

  const second = await start("a", "b");
  await worker.complete(await worker.acquireOne());
  const twins = await start("c", "c", "d");

  expect([first, second, twins]).toEqual([[true], [false, true], [expect.any(Boolean), expect.any(Boolean), "error"]]);
  expect(twins.filter((created) => created === true)).toHaveLength(1);
  await worker.complete(await worker.acquireOne());
});
