import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { toDefinition, toStart } from "@runmesh/testing/given";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { reasonName } from "@runmesh/testing/reason-name";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: TestMesh;
beforeAll(async () => {
  mesh = await startMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

test("the same key, or request id, gives the same run", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const start = { workflow, inputPayload: { case: "inputJson" as const, value: Buffer.from('{"a":1,"b":2.0}') } };

  const keyed = await mesh.runs.startRun({ ...start, idempotencyKey: "k" });
  const again = await mesh.runs.startRun({ ...start, idempotencyKey: "k" });
  const asked = await mesh.runs.startRun({ ...start, requestId: "k" });
  const askedAgain = await mesh.runs.startRun({ ...start, requestId: "k" });

  expect([keyed.created, again.created, asked.created, askedAgain.created]).toEqual([true, false, true, false]);
  expect(again.runId).toBe(keyed.runId);
  expect(askedAgain.runId).toBe(asked.runId);
  // A key and a request id of one text are two things.
  expect(asked.runId).not.toBe(keyed.runId);
});

test("a body that means the same matches its key, however it was written", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const inputs = ['{"a":1,"b":[2.50]}', ' { "b": [25e-1], "a": 1.0 } '];

  const started = [];
  for (const input of inputs) {
    started.push(
      await mesh.runs.startRun(toStart({ workflow, input, idempotencyKey: "k", labels: { y: "2", x: "1" } })),
    );
  }

  expect(new Set(started.map(({ runId }) => runId)).size).toBe(1);
});

test.each([
  ["input", { input: "2" }],
  ["an exact digit of the input", { input: "9007199254740993" }],
  ["labels", { labels: { x: "1" } }],
  ["the due time", { dueTime: timestampFromMs(Date.now() + 3_600_000) }],
] as const)("a key with another body is refused: %s", async (_what, other) => {
  const { name: workflow } = await mesh.given.workflow();
  const first = {
    workflow,
    idempotencyKey: "k",
    input: "input" in other && other.input !== "2" ? "9007199254740992" : "1",
  };
  await mesh.runs.startRun(toStart(first));

  const second = mesh.runs.startRun(toStart({ ...first, ...other }));

  await expect(second).rejects.toMatchObject({
    reason: "IDEMPOTENCY_MISMATCH",
    violations: [{ field: "idempotency_key" }],
  });
});

test("a newer version changes nothing for a key that was used", async () => {
  const { name } = await mesh.given.workflow();
  const first = await mesh.runs.startRun({ workflow: name, idempotencyKey: "k" });
  await mesh.given.workflow({ name, tasks: [{ key: "other" }] });

  const again = await mesh.runs.startRun({ workflow: name, idempotencyKey: "k" });

  expect(again).toMatchObject({ runId: first.runId, created: false, workflowVersion: 1 });
});

test("a key belongs to its workflow", async () => {
  const [one, other] = [await mesh.given.workflow(), await mesh.given.workflow()];

  const first = await mesh.runs.startRun({ workflow: one.name, idempotencyKey: "k" });
  const second = await mesh.runs.startRun({ workflow: other.name, idempotencyKey: "k" });

  expect([first.created, second.created]).toEqual([true, true]);
});

test("a key lives on when its run has ended", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const { runId } = await mesh.runs.startRun({ workflow, idempotencyKey: "k" });
  await mesh.runs.cancelRun({ runId });

  const again = await mesh.runs.startRun({ workflow, idempotencyKey: "k" });

  expect(again).toMatchObject({ runId, created: false });
});

test("twelve clients with one key start one run", async () => {
  const { name: workflow } = await mesh.given.workflow();

  const started = await Promise.all(
    Array.from({ length: 12 }, () => mesh.runs.startRun({ workflow, idempotencyKey: "all at once" })),
  );

  expect(new Set(started.map(({ runId }) => runId)).size).toBe(1);
  expect(started.filter(({ created }) => created)).toHaveLength(1);
  const { runs } = await mesh.runs.listRuns({ filter: { workflow } });
  expect(runs).toMatchObject([{ idempotencyKey: "all at once" }]);
});

test("each start of a batch is answered for itself, in order, twins and bad ones included", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const start = (idempotencyKey: string, rest: object = {}) => toStart({ workflow, idempotencyKey, ...rest });

  const { results } = await mesh.runs.startRuns({
    runs: [
      start("a"),
      start("b\0"),
      start("a"),
      { workflow: "nobody" },
      start("a", { input: "5" }),
      start("c", { input: "{" }),
      start("c", { labels: { "no good": "x" } }),
      { definition: toDefinition({ tasks: [{ key: "t", dependsOn: ["t"] }] }) },
      start("d"),
    ],
  });

  const said = results.map(({ result }) => {
    if (result.case === "started") return result.value.created;
    return [reasonName(result.value!.reason!), result.value!.violations![0]!.field];
  });
  expect(said).toEqual([
    true,
    ["INVALID_FIELD", "idempotency_key"],
    false,
    ["NOT_FOUND", "workflow"],
    ["IDEMPOTENCY_MISMATCH", "idempotency_key"],
    ["INVALID_PAYLOAD", "input"],
    ["INVALID_FIELD", 'labels["no good"]'],
    ["GRAPH_CYCLE", "definition.tasks[0].depends_on[0]"],
    true,
  ]);
  const runIds = results.map(({ result }) => (result.case === "started" ? result.value.runId : undefined));
  expect(runIds[2]).toBe(runIds[0]);
  expect((await mesh.runs.listRuns({ filter: { workflow } })).runs).toHaveLength(2);
});

test("a batch has 1 to 1,000 runs, and a thousand start at once", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const many = (length: number) => ({ runs: Array.from({ length }, () => ({ workflow })) });

  await expect(mesh.runs.startRuns(many(0))).rejects.toMatchObject({ reason: "INVALID_FIELD", field: "runs" });
  await expect(mesh.runs.startRuns(many(1_001))).rejects.toMatchObject({ field: "runs" });
  const { results } = await mesh.runs.startRuns(many(1_000));

  expect(new Set(results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n))).size).toBe(1_000);
});

test("an inline graph runs without a name being registered", async () => {
  const definition = toDefinition({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });
  const worker = await mesh.worker({ handlers: ["inline"] });
  for (const task of definition.tasks) task.handler = "inline";

  const { runId, workflowVersion } = await mesh.runs.startRun({ definition });
  expect(await worker.drain()).toEqual(["a", "b"]);

  expect(workflowVersion).toBe(0);
  expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
  const { workflows } = await mesh.workflows.listWorkflows({ namePrefix: definition.name });
  expect(workflows).toEqual([]);
  await expect(mesh.runs.startRun({ workflow: definition.name })).rejects.toMatchObject({ reason: "NOT_FOUND" });
});

test("the same content is the same version; a start takes the newest, the one named, or the one with its content", async () => {
  const first = await mesh.given.workflow();
  const second = await mesh.given.workflow({ name: first.name, tasks: [{ key: "other" }] });
  const again = await mesh.given.workflow({ name: first.name });
  const start = async (fields: object) =>
    (await mesh.runs.startRun({ workflow: first.name, ...fields })).workflowVersion;

  expect([first.version, second.version, again.version]).toEqual([1, 2, 1]);
  expect(await start({})).toBe(2);
  expect(await start({ version: 1 })).toBe(1);
  expect(await start({ contentHash: first.contentHash })).toBe(1);
  await expect(start({ version: 3 })).rejects.toMatchObject({ reason: "NOT_FOUND", field: "version" });
  await expect(start({ contentHash: "00".repeat(32) })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  const { versions } = await mesh.workflows.listWorkflowVersions({ name: first.name });
  expect(versions.map(({ version }) => version)).toEqual([2, 1]);
});

test("ten registrations of one content at once make one version", async () => {
  const definition = toDefinition({});

  const answers = await Promise.all(Array.from({ length: 10 }, () => mesh.workflows.registerWorkflow({ definition })));

  expect(answers.map(({ version }) => version!.version)).toEqual(Array.from({ length: 10 }, () => 1));
  expect(answers.filter(({ created }) => created)).toHaveLength(1);
});

test("a run with a due time waits PENDING, then runs", async () => {
  const worker = await mesh.worker({ handlers: ["later"] });
  const dueAt = Date.now() + 700;

  const runId = await mesh.given.run({ tasks: [{ key: "t", handler: "later" }] }, { dueTime: timestampFromMs(dueAt) });
  const { run: before } = await mesh.runs.getRun({ runId });
  const tooEarly = await worker.acquire(1);
  const task = await worker.acquireOne();
  expect(await worker.complete(task)).toBe("accepted");
  const run = await mesh.ended(runId);

  expect(before!.state).toBe(Run_State.PENDING);
  expect(tooEarly).toEqual([]);
  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(timestampMs(run.startTime!)).toBeGreaterThanOrEqual(dueAt);
  expect(timestampMs(run.startTime!)).toBeLessThan(dueAt + 2_000);
});

test("a run that is late ends TIMED_OUT, its tasks CANCELLED, its worker told", async () => {
  const worker = await mesh.worker({ handlers: ["slow"] });
  const runId = await mesh.given.run({
    tasks: [
      { key: "a", handler: "slow" },
      { key: "b", dependsOn: ["a"] },
    ],
    deadline: "300ms",
  });
  const task = await worker.acquireOne();

  const run = await mesh.ended(runId);

  expect(run).toMatchObject({ state: Run_State.TIMED_OUT, tasks: { total: 2, cancelled: 2, open: 0 } });
  expect(await worker.complete(task)).toBe("RUN_NOT_ACTIVE");
  expect(await worker.lost()).toMatchObject({ taskId: task.taskId, fence: task.fence });
});

test("lists filter by workflow, version, state, key, labels and time", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const start = async (fields: object) => (await mesh.runs.startRun({ workflow, ...fields })).runId;
  const plain = await start({});
  const keyed = await start({ idempotencyKey: "filtered" });
  const labelled = await start({ labels: { team: "a", tier: "1" } });
  await mesh.runs.cancelRun({ runId: plain });
  await mesh.given.workflow({ name: workflow, tasks: [{ key: "v2" }] });
  const second = await start({ labels: { team: "a" } });
  const list = async (filter: object) =>
    (await mesh.runs.listRuns({ filter: { workflow, ...filter } })).runs.map((run) => run.id);
  const { run } = await mesh.runs.getRun({ runId: labelled });

  expect(await list({})).toEqual([second, labelled, keyed, plain]);
  expect(await list({ states: [Run_State.CANCELLED] })).toEqual([plain]);
  expect(await list({ states: [Run_State.RUNNING, Run_State.PENDING] })).toEqual([second, labelled, keyed]);
  expect(await list({ workflowVersion: 2 })).toEqual([second]);
  expect(await list({ idempotencyKey: "filtered" })).toEqual([keyed]);
  expect(await list({ labels: { team: "a" } })).toEqual([second, labelled]);
  expect(await list({ labels: { team: "a", tier: "1" } })).toEqual([labelled]);
  expect(await list({ labels: { team: "b" } })).toEqual([]);
  expect(await list({ createdBefore: run!.createTime! })).toEqual([keyed, plain]);
  expect(await list({ createdAfter: run!.createTime! })).toContain(second);
  expect(await list({ workflow: "nobody" })).toEqual([]);
});

test("pages neither skip nor repeat while runs are started", async () => {
  const { name: workflow } = await mesh.given.workflow();
  const started = await mesh.runs.startRuns({ runs: Array.from({ length: 57 }, () => ({ workflow })) });
  const runIds = started.results.map(({ result }) => (result.case === "started" ? result.value.runId : 0n));

  const seen: bigint[] = [];
  let pageToken = "";
  do {
    const page = await mesh.runs.listRuns({ filter: { workflow }, pageSize: 10, pageToken });
    seen.push(...page.runs.map((run) => run.id));
    await mesh.runs.startRun({ workflow });
    pageToken = page.nextPageToken;
  } while (pageToken !== "");

  expect(seen).toEqual(runIds.toReversed());
  const oldest = await mesh.runs.listRuns({ filter: { workflow }, pageSize: 3, order: 2 });
  expect(oldest.runs.map((run) => run.id)).toEqual(runIds.slice(0, 3));
  await expect(mesh.runs.listRuns({ pageToken: "made up" })).rejects.toMatchObject({ field: "page_token" });
  await expect(mesh.runs.listRuns({ pageSize: 1_001 })).rejects.toMatchObject({ field: "page_size" });
});

test("labels are kept, and wrong ones refused with their key", async () => {
  const labels = { "team/a.b-c_d": "ünï 🚀", empty: "" };
  const runId = await mesh.given.run({}, { labels });

  const { run } = await mesh.runs.getRun({ runId });

  expect(run!.labels).toEqual(labels);
  const refused = (wrong: Record<string, string>) => expect(mesh.given.run({}, { labels: wrong })).rejects;
  await refused(Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`l${i}`, ""]))).toMatchObject({
    field: "labels",
  });
  await refused({ ok: "a\0b" }).toMatchObject({ field: 'labels["ok"]' });
  await refused({ ok: "x".repeat(1_025) }).toMatchObject({ field: 'labels["ok"]' });
  await refused({ "": "x" }).toMatchObject({ field: 'labels[""]' });
});

test("what a run and its list do not have answers NOT_FOUND", async () => {
  await expect(mesh.runs.getRun({ runId: 1n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.runs.cancelRun({ runId: 0n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.runs.listEvents({ runId: -5n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.ended(2n ** 62n)).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.tasks.getTask({ taskId: 2n ** 62n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.tasks.listTasks({ runId: 2n ** 62n })).rejects.toMatchObject({ reason: "NOT_FOUND" });
});
