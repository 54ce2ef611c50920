import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { createServiceClient, createTransport } from "@runmesh/client/internal";
import { LogLineSchema } from "@runmesh/contracts/task/v1/task_pb";
import { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { type Removed, Retention } from "@runmesh/scheduler/retention";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { findDefinition } from "@runmesh/store/definitions";
import { holdDuty } from "@runmesh/store/duties";
import { listSlots } from "@runmesh/store/partitions";
import { type NewRun, startRuns } from "@runmesh/store/start-runs";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, onTestFinished, test } from "vitest";

const DAY = 86_400_000;
const KEEP = 30 * DAY;
const BLOCKS_A_RANGE = 1_024;

/** Removes once; the mesh's own pass, a moment after it came up, may have the duty. */
async function remove(mesh: TestMesh, options: { keepMs?: number; batch?: number } = {}): Promise<Removed> {
  const retention = new Retention({ db: mesh.db, keepMs: KEEP, ...options });
  for (;;) {
    const removed = await retention.runOnce(new AbortController().signal);
    if (removed.onDuty) return removed;
  }
}

/** Makes everything of runs seem older by so much. */
async function age(mesh: TestMesh, ms: number, runIds: readonly bigint[]): Promise<void> {
  const by = [runIds, ms];
  const shift = (column: string) => `${column} = ${column} - $2 * interval '1 ms'`;
  await mesh.db.rows(
    "",
    `UPDATE run SET ${shift("created_at")}, ${shift("finished_at")} WHERE id = ANY ($1::bigint[])`,
    by,
  );
  await mesh.db.rows("", `UPDATE start_key SET ${shift("created_at")} WHERE run_id = ANY ($1::bigint[])`, by);
}

/** Runs of one task that are done, with a log line and an event of their own. */
async function finishedRuns(mesh: TestMesh, count: number): Promise<bigint[]> {
  const worker = await mesh.worker();
  const runIds: bigint[] = [];
  for (let i = 0; i < count; i++) runIds.push(await mesh.given.run());
  for (const runId of runIds) {
    await mesh.runs.pauseRun({ runId });
    await mesh.runs.resumeRun({ runId });
  }
  for (const { taskId, fence } of await worker.acquire(count)) {
    const log = [create(LogLineSchema, { level: 2, message: "hello" })];
    await worker.renew([{ taskId, fence, started: true, log }], true);
    await worker.complete({ taskId, fence });
  }
  for (const runId of runIds) await mesh.ended(runId);
  worker.close();
  return runIds;
}

const TABLES = {
  run: "id",
  task: "id >> 20",
  attempt: "task_id >> 20",
  attempt_log: "task_id >> 20",
  run_event: "run_id",
  start_key: "run_id",
};

/** How many rows each table has of these runs. */
async function countRows(mesh: TestMesh, runIds: readonly bigint[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const [table, runId] of Object.entries(TABLES)) {
    const text = `SELECT count(*)::int AS count FROM ${table} WHERE (${runId}) = ANY ($1::bigint[])`;
    counts[table] = (await mesh.db.one<{ count: number }>("", text, [runIds])).count;
  }
  return counts;
}

const NOTHING = { run: 0, task: 0, attempt: 0, attempt_log: 0, run_event: 0, start_key: 0 };

/** Starts runs as of later: with ids of the next range. */
async function startInNextRange(mesh: TestMesh, workflow: string, count: number): Promise<bigint[]> {
  await mesh.db.rows("", "SELECT setval('run_id_block', $1)", [BLOCKS_A_RANGE]);
  const { first } = await mesh.db.one<{ first: bigint }>("", "SELECT take_run_id_block() AS first", []);
  const { id } = (await findDefinition(mesh.db, { tenantId: 1, workflow, version: 1 }))!;
  const { row, plan, routeIds, ranks } = await new DefinitionCache(mesh.db, () => {}).get(1, id);
  const runs = Array.from(
    { length: count },
    (_, i): NewRun => ({
      runId: first + BigInt(i),
      definitionId: row.id,
      workflowId: row.workflow_id,
      taskCount: plan.taskCount,
      digest: crypto.randomUUID(),
      bodyHash: crypto.randomUUID(),
      input: undefined,
      labels: "{}",
      idempotencyKey: undefined,
      dueAtMs: 0,
      deadlineMs: 0,
      maxParallel: 0,
      traceparent: undefined,
      pending: plan.initialPending,
      roots: plan.roots,
      routeIds,
      ranks,
    }),
  );
  return [...(await startRuns(mesh.db, { tenantId: 1, principal: "test", runs }))];
}

const tableNames = async (mesh: TestMesh, low: bigint) =>
  (await listSlots(mesh.db)).find((slot) => slot.low === low)?.tables.map((table) => table.name) ?? [];

test("a run that ended before its time goes with everything that hangs on it, and no other does", async () => {
  await using mesh = await startMesh();
  const [old, young] = [await finishedRuns(mesh, 5), await finishedRuns(mesh, 2)];
  const before = await countRows(mesh, young);
  await age(mesh, KEEP + DAY, old);
  await age(mesh, KEEP - DAY, young);

  const removed = await remove(mesh);
  const again = await remove(mesh);

  expect(removed).toMatchObject({ runs: 5, keys: 5, ranges: 0 });
  expect(await countRows(mesh, old)).toEqual(NOTHING);
  expect(await countRows(mesh, young)).toEqual(before);
  expect(before).toEqual({ run: 2, task: 2, attempt: 2, attempt_log: 2, run_event: 4, start_key: 2 });
  expect(again).toMatchObject({ runs: 0, rows: 0, keys: 0 });
  await expect(mesh.runs.getRun({ runId: old[0]! })).rejects.toMatchObject({ reason: "NOT_FOUND" });
});

test("nothing of an active run is touched, however old it is, nor of a child that it may ask for", async () => {
  await using mesh = await startMesh();
  const [child, grown] = await finishedRuns(mesh, 2);
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });
  await worker.complete(await worker.acquireOne());
  await mesh.db.rows("", "UPDATE run SET parent_run_id = $1 WHERE id = $2", [runId, child]);
  await age(mesh, 400 * DAY, [child!, grown!, runId]);
  const before = await countRows(mesh, [runId, child!]);

  const removed = await remove(mesh);

  expect(removed).toMatchObject({ runs: 1, keys: 1 });
  expect(await countRows(mesh, [runId, child!])).toEqual(before);
  expect(await countRows(mesh, [grown!])).toEqual(NOTHING);
  expect(await worker.drain()).toEqual(["b"]);
  expect((await mesh.ended(runId)).tasks).toMatchObject({ total: 2, succeeded: 2 });
});

test("a key outlives its run to be 7 days old", async () => {
  await using mesh = await startMesh();
  const runIds = await finishedRuns(mesh, 2);
  await age(mesh, 2 * DAY, runIds);

  const early = await remove(mesh, { keepMs: DAY });
  const kept = await countRows(mesh, runIds);
  await age(mesh, 6 * DAY, runIds);
  const late = await remove(mesh, { keepMs: DAY });

  expect([early.runs, early.keys, late.keys]).toEqual([2, 0, 2]);
  expect(kept).toEqual({ ...NOTHING, start_key: 2 });
});

test("a tenant's own time holds in place of the mesh's", async () => {
  await using mesh = await startMesh();
  const runIds = await finishedRuns(mesh, 1);
  await age(mesh, 10 * DAY, runIds);
  const transport = createTransport({ url: mesh.url });
  onTestFinished(() => transport.close());
  const tenants = createServiceClient(TenantService, transport, { timeoutMs: 10_000, attempts: 1 });
  const keep = (keepDays: number) => tenants.setQuota({ tenant: "default", quota: { keepDays } });

  await keep(11);
  const longer = await remove(mesh, { keepMs: DAY });
  const { tenant } = await keep(9);
  const shorter = await remove(mesh, { keepMs: KEEP });

  expect(tenant!.quota).toMatchObject({ keepDays: 9, requestsPerSecond: 0 });
  expect([longer.runs, shorter.runs]).toEqual([0, 1]);
});

test("rows go in batches, and what was cut off goes on", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: Array.from({ length: 25 }, () => ({})) });
  await worker.drain();
  await mesh.ended(runId);
  await age(mesh, KEEP + DAY, [runId]);
  const cut = new AbortController();
  const statements: number[] = [];
  const db = {
    ...mesh.db,
    async one<T>(name: string, text: string, params: readonly unknown[]): Promise<T> {
      const row = await mesh.db.one<T>(name, text, params);
      if (!/^remove_(attempts|tasks)$/.test(name)) return row;
      const { count } = row as { count: number };
      if (count > 0) statements.push(count);
      if (statements.length === 3) cut.abort();
      return row;
    },
    rows: <T>(name: string, text: string, params: readonly unknown[]) => mesh.db.rows<T>(name, text, params),
    find: <T>(name: string, text: string, params: readonly unknown[]) => mesh.db.find<T>(name, text, params),
    transaction: mesh.db.transaction.bind(mesh.db),
    close: async () => {},
  };

  while (!(await new Retention({ db, keepMs: KEEP, batch: 10 }).runOnce(cut.signal)).onDuty);
  const left = await countRows(mesh, [runId]);
  const rest = await remove(mesh, { batch: 10 });

  expect(statements).toEqual([10, 10, 5]);
  expect(left).toMatchObject({ run: 0, attempt: 0, task: 25 });
  expect(rest.rows).toBe(25);
  expect(await countRows(mesh, [runId])).toMatchObject({ run: 0, task: 0 });
});

test("a range of ids goes whole, tables and all, once no run in it is kept and none will come", async () => {
  await using mesh = await startMesh();
  await mesh.given.workflow({ name: "later" });
  const old = await finishedRuns(mesh, 3);
  const later = await startInNextRange(mesh, "later", 2);
  await age(mesh, KEEP + DAY, old);
  await age(mesh, 2 * DAY, later);
  const names = await tableNames(mesh, 0n);

  const removed = await remove(mesh);
  const next = await remove(mesh);

  expect(names).toHaveLength(7);
  expect(removed).toMatchObject({ runs: 0, rows: 0, ranges: 1 });
  expect(next).toMatchObject({ ranges: 0, keys: 3 });
  expect(await tableNames(mesh, 0n)).toEqual([]);
  expect(await countRows(mesh, old)).toEqual(NOTHING);
  expect((await countRows(mesh, later)).run).toBe(2);
  const worker = await mesh.worker();
  expect(await worker.drain()).toHaveLength(2);
});

test("a range with a survivor is swept, and one whose ids may still be used is never dropped", async () => {
  await using mesh = await startMesh();
  await mesh.given.workflow({ name: "later" });
  const [first, second, third] = await finishedRuns(mesh, 3);
  const later = await startInNextRange(mesh, "later", 1);
  await age(mesh, KEEP + DAY, [first!, second!]);

  const unsettled = await remove(mesh);
  await age(mesh, 2 * DAY, later);
  const survivor = await remove(mesh);
  await age(mesh, KEEP - DAY / 2, [third!]);
  const soon = await remove(mesh);
  await age(mesh, DAY, [third!]);
  const whole = await remove(mesh);

  expect(unsettled).toMatchObject({ runs: 2, ranges: 0 });
  expect([survivor, soon]).toMatchObject([
    { runs: 0, ranges: 0 },
    { runs: 0, ranges: 0 },
  ]);
  expect(whole).toMatchObject({ runs: 0, ranges: 1 });
  await mesh.runs.cancelRun({ runId: later[0]! });
});

test("a drop that was cut off between its tables is finished", async () => {
  await using mesh = await startMesh();
  await mesh.given.workflow({ name: "later" });
  const old = await finishedRuns(mesh, 1);
  const later = await startInNextRange(mesh, "later", 1);
  await age(mesh, KEEP + DAY, old);
  await age(mesh, 2 * DAY, later);
  await mesh.db.rows("", "ALTER TABLE run DETACH PARTITION run_p0 CONCURRENTLY", []);
  await mesh.db.rows("", "ALTER TABLE task DETACH PARTITION task_p0 CONCURRENTLY", []);
  await mesh.db.rows("", "DROP TABLE run_p0", []);

  const removed = await remove(mesh);

  expect(removed.ranges).toBe(1);
  expect(await tableNames(mesh, 0n)).toEqual([]);
  await mesh.runs.cancelRun({ runId: later[0]! });
});

test("one process removes at a time", async () => {
  await using mesh = await startMesh();
  const runIds = await finishedRuns(mesh, 1);
  await age(mesh, KEEP + DAY, runIds);
  const retention = new Retention({ db: mesh.db, keepMs: KEEP });
  const hold = (owner: string, ttlMs: number) => holdDuty(mesh.db, { name: "retention", owner, ttlMs });
  let other = await hold("another", 60_000);
  while (other === undefined) other = await hold("another", 60_000);

  const idle = await retention.runOnce(new AbortController().signal);
  await hold("another", 0);
  const onDuty = await retention.runOnce(new AbortController().signal);

  expect(idle).toMatchObject({ onDuty: false, runs: 0 });
  expect(onDuty).toMatchObject({ onDuty: true, runs: 1 });
  expect((await hold("third", 0))!.fence).toBe(other.fence + 2n);
});

test("worker sessions go once no run is left that could name them", async () => {
  await using mesh = await startMesh();
  const runIds = await finishedRuns(mesh, 1);
  await mesh.db.rows("", "UPDATE session SET closed_at = clock_timestamp() - interval '31 days'", []);
  await age(mesh, 40 * DAY, runIds);
  await mesh.db.rows("", "UPDATE run SET finished_at = clock_timestamp()", []);

  const named = await remove(mesh);
  await mesh.db.rows("", "UPDATE run SET created_at = clock_timestamp()", []);
  const forgotten = await remove(mesh);

  expect([named.sessions, forgotten.sessions]).toEqual([0, 1]);
});

const definitions = (mesh: TestMesh, name: string) =>
  mesh.db.rows<{ id: bigint; is_fresh: boolean }>(
    "",
    `SELECT definition.id, used_at > clock_timestamp() - interval '1 hour' AS is_fresh
     FROM definition JOIN workflow ON workflow.id = workflow_id WHERE name = $1`,
    [name],
  );
const ageDefinitions = (mesh: TestMesh, ms: number) =>
  mesh.db.rows("", "UPDATE definition SET used_at = used_at - $1 * interval '1 ms'", [ms]);

test("an inline definition goes when no kept run has it, and its content may be started again", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const gone = { name: "gone", tasks: [{ priority: 1 }] };
  const first = await mesh.given.run(gone);
  const open = await mesh.given.run({ name: "open" });
  const { version } = await mesh.given.workflow({ name: "registered" });
  await worker.complete(await worker.acquireOne());
  await mesh.ended(first);
  await mesh.standalone.relayed();
  await age(mesh, KEEP + DAY, [first, open]);

  const young = await remove(mesh);
  await ageDefinitions(mesh, KEEP + DAY);
  const old = await remove(mesh);
  const left = await definitions(mesh, "gone");
  const again = await mesh.given.run(gone);
  await worker.drain();

  expect([young.definitions, old.definitions]).toEqual([0, 1]);
  expect(left).toEqual([]);
  expect((await mesh.ended(again)).state).toBe(4);
  expect((await mesh.ended(open)).state).toBe(4);
  expect(await definitions(mesh, "open")).toMatchObject([{ is_fresh: true }]);
  expect(await definitions(mesh, "registered")).toMatchObject([{ is_fresh: false }]);
  expect(version).toBe(1);
});

test("a start or a rerun keeps a definition that retention was about to remove", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const [started, rerun] = [await mesh.given.run({ name: "started" }), await mesh.given.run({ name: "rerun" })];
  await worker.drain();
  await Promise.all([mesh.ended(started), mesh.ended(rerun)]);
  await mesh.standalone.relayed();
  await ageDefinitions(mesh, KEEP + DAY);

  // Runs whose statements are still to come: only the word that the definitions are used stands for them.
  await mesh.given.run({ name: "started" });
  await mesh.runs.rerunRun({ runId: rerun });
  await worker.drain();
  await mesh.standalone.relayed();
  await mesh.db.rows("", "DELETE FROM run", []);
  const removed = await remove(mesh);

  expect(removed.definitions).toBe(0);
});

test("a start that finds its definition just being removed registers it anew", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const first = await mesh.given.run({ name: "raced" });
  await worker.drain();
  await mesh.ended(first);
  await ageDefinitions(mesh, KEEP + DAY);

  let starting: Promise<bigint> | undefined;
  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "DELETE FROM run WHERE id = $1", [first]);
    await tx.rows("", "DELETE FROM definition WHERE workflow_id = (SELECT id FROM workflow WHERE name = 'raced')", []);
    starting = mesh.given.run({ name: "raced" });
    const waits = "SELECT 1 FROM pg_locks WHERE NOT granted";
    while ((await tx.rows("", waits, [])).length === 0) await delay(10);
  });
  const again = await starting!;
  await worker.drain();

  expect((await mesh.ended(again)).state).toBe(4);
  expect(await definitions(mesh, "raced")).toMatchObject([{ is_fresh: true }]);
});
