import type { RunsChange } from "@runmesh/contracts/run/v1/run_pb";
import { Run_State, RunLeft_Cause } from "@runmesh/contracts/run/v1/run_pb";
import { ListRunsRequest_Order, type WatchRunsResponse } from "@runmesh/contracts/run/v1/run_service_pb";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { findDefinition } from "@runmesh/store/definitions";
import { RunIds } from "@runmesh/store/run-ids";
import { listRunPage } from "@runmesh/store/run-pages";
import { type NewRun, startRuns } from "@runmesh/store/start-runs";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const TENANT = 1;
const { OLDEST_FIRST } = ListRunsRequest_Order;
const { RUNNING, FAILED, CANCELLED, PAUSED, SUCCEEDED } = Run_State;

/** Starts runs in one statement, so that all are created at the same instant. */
async function startAtOnce(mesh: TestMesh, workflow: string, count: number): Promise<bigint[]> {
  const definition = await findDefinition(mesh.db, { tenantId: TENANT, workflow, version: 1 });
  const loaded = await new DefinitionCache(mesh.db, () => {}).get(TENANT, definition!.id);
  const runIds = await new RunIds(mesh.db).take(count);
  const runs = runIds.map(
    (runId): NewRun => ({
      runId,
      definitionId: loaded.row.id,
      workflowId: loaded.row.workflow_id,
      taskCount: loaded.plan.taskCount,
      digest: crypto.randomUUID(),
      bodyHash: crypto.randomUUID(),
      input: undefined,
      labels: "{}",
      idempotencyKey: undefined,
      dueAtMs: 0,
      deadlineMs: 0,
      maxParallel: 0,
      traceparent: undefined,
      pending: loaded.plan.initialPending,
      roots: loaded.plan.roots,
      routeIds: loaded.routeIds,
      ranks: loaded.ranks,
    }),
  );
  const started = await startRuns(mesh.db, { tenantId: TENANT, principal: "test", runs });
  expect(started.size).toBe(count);
  return runIds;
}

/** Makes running runs of one task FAILED by it, as its last attempt would have. */
async function failAll(mesh: TestMesh): Promise<void> {
  await mesh.db.transaction(async (tx) => {
    await tx.rows("", "DELETE FROM ready", []);
    await tx.rows("", "UPDATE task SET state = 7", []);
    await tx.rows(
      "",
      `UPDATE run SET state = 5, open_count = 0, dead_count = 1, failing_count = 1, sequence = 2,
         finished_at = clock_timestamp(), failure_task_id = id << 20, failure_type = 'Broken'`,
      [],
    );
  });
}

async function listAll(mesh: TestMesh, pageSize: number, query = {}): Promise<bigint[]> {
  const ids: bigint[] = [];
  let pageToken = "";
  do {
    const page = await mesh.runs.listRuns({ ...query, pageSize, pageToken });
    ids.push(...page.runs.map((run) => run.id));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return ids;
}

type Walk = "cancelRuns" | "pauseRuns" | "resumeRuns" | "retryRuns";

/** Walks to the end; answers how many each page moved and passed over. */
async function walk(mesh: TestMesh, method: Walk, filter: object, pageSize = 1_000, requestId = "") {
  const pages: [moved: number, passedOver: number][] = [];
  let pageToken = "";
  do {
    const page = await mesh.runs[method]({ filter, pageSize, pageToken, requestId });
    pages.push([page.movedCount, page.passedOverCount]);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return pages;
}

const sum = (pages: [number, number][]) => pages.reduce((total, [moved]) => total + moved, 0);

/** Each is opened again by a transaction of its own: the whole takes a minute of two cores. */
const MANY = process.env.RUNMESH_TEST_LONG === "1" ? 10_000 : 2_000;
const PAGE = 50;

test(`${MANY} runs created in one millisecond are listed and bulk-replayed without a skip or a repeat`, async () => {
  await using mesh = await startMesh();
  await mesh.given.workflow({ name: "many" });
  const runIds = await startAtOnce(mesh, "many", MANY);
  await failAll(mesh);
  const failed = { workflow: "many", states: [FAILED] };

  const { instants } = await mesh.db.one<{ instants: number }>(
    "",
    "SELECT count(DISTINCT created_at)::int AS instants FROM run",
    [],
  );
  const newestFirst = await listAll(mesh, 777);
  const oldestFirst = await listAll(mesh, 1_000, { order: OLDEST_FIRST });
  // Half of them as dead letters, the other half as runs.
  const replayed = await replayPages(mesh, MANY / 2 / PAGE);
  const retried = await walk(mesh, "retryRuns", failed, PAGE);
  const moves = await mesh.db.rows<{ run_id: bigint; moves: number }>(
    "",
    "SELECT run_id, count(*)::int AS moves FROM run_event WHERE type IN (9, 25) GROUP BY run_id ORDER BY run_id",
    [],
  );

  expect(instants).toBe(1);
  expect(newestFirst).toEqual(runIds.toReversed());
  expect(oldestFirst).toEqual(runIds);
  expect(replayed).toEqual(Array(MANY / 2 / PAGE).fill([PAGE, 0]));
  expect(retried).toEqual(Array(MANY / 2 / PAGE).fill([PAGE, 0]));
  expect(moves).toEqual(runIds.map((run_id) => ({ run_id, moves: 1 })));
  expect(await listAll(mesh, 1_000, { filter: failed })).toEqual([]);
}, 1_800_000);

async function replayPages(mesh: TestMesh, count: number): Promise<[replayed: number, passedOver: number][]> {
  const pages: [number, number][] = [];
  for (let pageToken = ""; pages.length < count; ) {
    const page = await mesh.tasks.replayDeadLetters({ workflow: "many", pageSize: PAGE, pageToken });
    pages.push([page.replayedCount, page.passedOverCount]);
    pageToken = page.nextPageToken;
  }
  return pages;
}

test("a filter pauses, resumes and cancels what it holds for, page by page, and nothing else", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const labelled = { labels: { team: "a" } };
  const done = await mesh.given.run({}, labelled);
  await worker.complete(await worker.acquireOne());
  await mesh.ended(done);
  const runIds: bigint[] = [];
  for (let i = 0; i < 5; i++) runIds.push(await mesh.given.run({}, labelled));
  const other = await mesh.given.run();
  const filter = { labels: { team: "a" } };
  const states = async () => (await mesh.runs.listRuns({ filter })).runs.map((run) => run.state);

  const paused = await walk(mesh, "pauseRuns", filter, 2);
  const whilePaused = await states();
  const resumed = await walk(mesh, "resumeRuns", filter, 2);
  const again = await walk(mesh, "resumeRuns", filter, 2);
  const ready = await worker.acquire(10);
  const cancelled = await walk(mesh, "cancelRuns", { ...filter, states: [RUNNING, PAUSED, SUCCEEDED] }, 2);

  expect(paused).toEqual([
    [2, 0],
    [2, 0],
    [1, 0],
  ]);
  expect(whilePaused).toEqual([...Array(5).fill(PAUSED), SUCCEEDED]);
  expect([sum(resumed), again]).toEqual([5, [[0, 0]]]);
  expect(ready).toHaveLength(6);
  expect(sum(cancelled)).toBe(5);
  expect(await states()).toEqual([...Array(5).fill(CANCELLED), SUCCEEDED]);
  expect((await mesh.runs.getRun({ runId: other })).run!.state).toBe(RUNNING);
});

test("a page that is retried again by its request id retries no run twice", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runIds = [await mesh.given.run({ name: "w" }), await mesh.given.run({ name: "w" })];
  const failBoth = async () => {
    for (const _ of runIds)
      await worker.fail(await worker.acquireOne(), { type: "Bad", message: "", retryable: false });
    for (const runId of runIds) await mesh.ended(runId);
  };
  await failBoth();

  const first = await walk(mesh, "retryRuns", { workflow: "w" }, 100, "once");
  await failBoth();
  const again = await walk(mesh, "retryRuns", { workflow: "w" }, 100, "once");
  const another = await walk(mesh, "retryRuns", { workflow: "w" }, 100, "twice");

  expect([first, again, another]).toEqual([[[2, 0]], [[0, 2]], [[2, 0]]]);
});

test("a bulk move without a filter is refused", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();

  for (const method of ["cancelRuns", "pauseRuns", "resumeRuns", "retryRuns"] as const) {
    await expect(mesh.runs[method]({ filter: {} })).rejects.toMatchObject({
      reason: "INVALID_FIELD",
      violations: [{ field: "filter" }],
    });
  }

  expect((await mesh.runs.getRun({ runId })).run!.state).toBe(RUNNING);
});

test("a rerun is a new run with the input and labels, linked, on the same definition unless asked", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const first = await mesh.given.workflow({ name: "order" });
  const { runId } = await mesh.runs.startRun({
    workflow: "order",
    labels: { team: "a" },
    inputPayload: { case: "inputJson", value: Buffer.from('{"n":9007199254740993}') },
  });
  await worker.drain();
  await mesh.given.workflow({ name: "order", tasks: [{ key: "other" }] });

  const same = await mesh.runs.rerunRun({ runId, requestId: "r" });
  const twin = await mesh.runs.rerunRun({ runId, requestId: "r" });
  const newest = await mesh.runs.rerunRun({ runId, definition: { case: "newestVersion", value: true } });
  const named = await mesh.runs.rerunRun({ runId, definition: { case: "workflowVersion", value: 1 } });
  const { run } = await mesh.runs.getRun({ runId: same.runId });

  expect(first.version).toBe(1);
  expect(same).toMatchObject({ created: true, workflowVersion: 1 });
  expect(twin).toMatchObject({ runId: same.runId, created: false, workflowVersion: 1 });
  expect([newest.workflowVersion, named.workflowVersion]).toEqual([2, 1]);
  expect(run).toMatchObject({ rerunOf: runId, labels: { team: "a" }, workflow: "order", state: RUNNING });
  expect(Buffer.from(run!.inputJson).toString()).toBe('{"n":9007199254740993}');
  const missing = { case: "workflowVersion", value: 9 } as const;
  await expect(mesh.runs.rerunRun({ runId, definition: missing })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.runs.rerunRun({ runId: 1n << 40n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  expect(await worker.drain()).toHaveLength(3);
});

test("a run of an inline definition is rerun on that definition, within its concurrency limit", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const definition = { concurrency: { key: "k", limit: 1 }, tasks: [{ key: "only" }] };
  const runId = await mesh.given.run(definition);

  const rerun = await mesh.runs.rerunRun({ runId });
  const [waiting] = (await mesh.runs.listRuns({ filter: { states: [Run_State.PENDING] } })).runs;
  const keys = await worker.drain();

  expect(waiting).toMatchObject({ id: rerun.runId, rerunOf: runId, workflowVersion: 0 });
  expect(keys).toEqual(["only", "only"]);
  expect((await mesh.ended(rerun.runId)).state).toBe(SUCCEEDED);
});

/** Reads the stream until `until` holds for what was heard. */
async function hear(stream: AsyncIterator<WatchRunsResponse>, until: (kinds: Kind[]) => boolean): Promise<Kind[]> {
  const kinds: Kind[] = [];
  while (!until(kinds)) {
    const { value, done } = await stream.next();
    if (done) throw new Error(`the stream ended after ${kinds.length} messages`);
    kinds.push(value.change!.kind);
  }
  return kinds;
}
type Kind = RunsChange["kind"];

const runsOf = (kinds: readonly Kind[]) =>
  kinds.flatMap((kind) => (kind.case === "snapshot" ? kind.value.runs : kind.case === "run" ? [kind.value] : []));
const isComplete = (kinds: Kind[]) => kinds.some((kind) => kind.case === "snapshot" && kind.value.complete);

test("watching tells what is there, what comes, what moves and what leaves the filter", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const labelled = { labels: { team: "a" } };
  const first = await mesh.given.run({}, labelled);
  await mesh.given.run();
  const left = new AbortController();
  const filter = { ...labelled, states: [RUNNING, PAUSED] };
  const stream = mesh.runs.watchRuns({ filter }, { signal: left.signal })[Symbol.asyncIterator]();

  const snapshot = await hear(stream, isComplete);
  const second = await mesh.given.run({}, labelled);
  const created = await hear(stream, (kinds) => kinds.length === 1);
  await mesh.runs.pauseRun({ runId: first });
  const paused = await hear(stream, (kinds) => kinds.length === 1);
  for (const task of await worker.acquire(10)) await worker.complete(task);
  const ended = await hear(stream, (kinds) => kinds.some((kind) => kind.case === "left"));
  left.abort();

  expect(runsOf(snapshot).map((run) => run.id)).toEqual([first]);
  expect(runsOf(created).map((run) => [run.id, run.state])).toEqual([[second, RUNNING]]);
  expect(runsOf(paused).map((run) => [run.id, run.state])).toEqual([[first, PAUSED]]);
  expect(ended.at(-1)).toMatchObject({
    case: "left",
    value: { runId: second, cause: RunLeft_Cause.FILTER, run: { id: second, state: SUCCEEDED } },
  });
});

test("a watcher that comes back is told only what moved since, and what it can no longer know of", async () => {
  await using mesh = await startMesh();
  const [kept, moved] = [await mesh.given.run(), await mesh.given.run()];
  const known = (await mesh.runs.listRuns({})).runs.map((run) => ({ runId: run.id, sequence: run.sequence }));
  await mesh.runs.cancelRun({ runId: moved });
  const fresh = await mesh.given.run();
  const left = new AbortController();

  const stream = mesh.runs.watchRuns({ known: [...known, { runId: 5n, sequence: 1n }] }, { signal: left.signal });
  const kinds = await hear(stream[Symbol.asyncIterator](), (heard) => heard.some((kind) => kind.case === "left"));
  left.abort();

  expect(runsOf(kinds).map((run) => [run.id, run.state])).toEqual([
    [fresh, RUNNING],
    [moved, CANCELLED],
  ]);
  expect(kinds.at(-1)).toMatchObject({ value: { runId: 5n, cause: RunLeft_Cause.REMOVED } });
  expect(known.map((run) => run.runId)).toContain(kept);
});

test("the newest runs are watched, at most so many: a newer one takes the place of the oldest", async () => {
  await using mesh = await startMesh();
  await mesh.given.workflow({ name: "many" });
  const runIds = await startAtOnce(mesh, "many", 250);
  const left = new AbortController();
  const stream = mesh.runs.watchRuns({ limit: 150 }, { signal: left.signal })[Symbol.asyncIterator]();

  const snapshot = await hear(stream, isComplete);
  const newest = await mesh.given.run();
  const after = await hear(stream, (kinds) => kinds.length === 2);
  left.abort();

  expect(snapshot.map((kind) => (kind.value as { runs: unknown[] }).runs.length)).toEqual([100, 50]);
  expect(runsOf(snapshot).map((run) => run.id)).toEqual(runIds.toReversed().slice(0, 150));
  expect(after).toMatchObject([
    { case: "left", value: { runId: runIds[100], cause: RunLeft_Cause.NEWER } },
    { case: "run", value: { id: newest } },
  ]);
  await walk(mesh, "cancelRuns", { states: [RUNNING] });
});

test("a page looks at a bounded number of runs, and the walk skips and repeats none", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const { results } = await mesh.runs.startRuns({ runs: Array.from({ length: 40 }, () => ({ workflow })) });
  const ids = results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));
  const rare = [ids[0]!, ids[16]!, ids[17]!, ids[18]!, ids[39]!];
  for (const runId of rare) await mesh.runs.cancelRun({ runId });
  const filter = { ...NO_FILTER, states: [Run_State.CANCELLED] };
  const walkPages = async (newestFirst: boolean) => {
    const pages: bigint[][] = [];
    for (let after: bigint | undefined, isFirst = true; isFirst || after !== undefined; isFirst = false) {
      const page = { tenantId: 1, filter, after, limit: 2, newestFirst, maxLookedAt: 10 };
      const { rows, next } = await listRunPage(mesh.db, page);
      pages.push(rows.map((row) => row.id));
      after = next;
    }
    return pages;
  };

  const oldest = await walkPages(false);
  const newest = await walkPages(true);

  expect(oldest).toEqual([[ids[0]], [ids[16], ids[17]], [ids[18]], [], [ids[39]]]);
  expect(newest).toEqual([[ids[39]], [], [ids[18], ids[17]], [ids[16]], [ids[0]]]);
  for (const runId of ids) await mesh.runs.cancelRun({ runId });
});

const NO_FILTER = {
  ...{ states: [], workflow: "", version: 0, createdAfter: undefined, createdBefore: undefined, labels: {} },
  ...{ parentRunId: 0n, idempotencyKey: "" },
};

test("a page of dead letters that is asked for again by its request id replays no task twice", async () => {
  await using mesh = await startMesh();
  for (let i = 0; i < 3; i++) await mesh.given.run({ tasks: [{ retry: { maxAttempts: 1 } }] });
  const worker = await mesh.worker();
  const failAll = async () => {
    for (const task of await worker.acquire(10, { waitMs: 5_000 })) await worker.fail(task);
  };
  await failAll();

  const first = await mesh.tasks.replayDeadLetters({ requestId: "once" });
  await failAll();
  const again = await mesh.tasks.replayDeadLetters({ requestId: "once" });
  const anew = await mesh.tasks.replayDeadLetters({ requestId: "twice" });

  expect(first).toMatchObject({ replayedCount: 3, passedOverCount: 0 });
  expect(again).toMatchObject({ replayedCount: 0, passedOverCount: 3 });
  expect(anew).toMatchObject({ replayedCount: 3, passedOverCount: 0 });
});

test("tasks are not listed by the token of another run's page", async () => {
  await using mesh = await startMesh();
  const one = await mesh.given.run({ tasks: [{}, {}] });
  const other = await mesh.given.run({ tasks: [{}, {}, {}] });
  const { nextPageToken } = await mesh.tasks.listTasks({ runId: one, pageSize: 1 });

  const page = mesh.tasks.listTasks({ runId: other, pageToken: nextPageToken });

  await expect(page).rejects.toMatchObject({ reason: "INVALID_FIELD", violations: [{ field: "page_token" }] });
});
