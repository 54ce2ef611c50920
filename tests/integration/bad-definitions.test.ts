import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";

const REGISTER = "runmesh.workflow.v1.WorkflowService/RegisterWorkflow";
const START = "runmesh.run.v1.RunService/StartRun";

let mesh: TestMesh;
beforeAll(async () => {
  mesh = await startMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

interface Wrong {
  readonly what: string;
  /** What stands beside `name: "bad"`; a text or bytes are sent as they are. */
  readonly definition?: Readonly<Record<string, unknown>>;
  readonly body?: string | Uint8Array | (() => string | Uint8Array);
  readonly reason: string;
  readonly field: string;
  readonly says?: string;
}

const a = { key: "a", handler: "work" };
const b = { key: "b", handler: "work" };
const task = (fields: object) => ({ tasks: [{ ...a, ...fields }] });
const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
const bytesOf = (text: string) => Buffer.from(text).toString("base64");
const written = (definition: string) => `{"definition":{"name":"bad","tasks":[${definition}]}}`;

const GRAPH: readonly Wrong[] = [
  {
    what: "a circle of three",
    definition: {
      tasks: [
        { ...a, dependsOn: ["c"] },
        { ...b, dependsOn: ["a"] },
        { key: "c", handler: "work", dependsOn: ["b"] },
      ],
    },
    reason: "GRAPH_CYCLE",
    field: "definition.tasks[0].depends_on[0]",
    says: "a -> c -> b -> a",
  },
  {
    what: "a task that depends on itself",
    definition: task({ dependsOn: ["a"] }),
    reason: "GRAPH_CYCLE",
    field: "definition.tasks[0].depends_on[0]",
  },
  {
    what: "a dependency on no task",
    definition: { tasks: [a, { ...b, dependsOn: ["a", "ghost"] }] },
    reason: "UNKNOWN_TASK",
    field: "definition.tasks[1].depends_on[1]",
    says: '"ghost"',
  },
  {
    what: "a dependency named twice",
    definition: { tasks: [a, { ...b, dependsOn: ["a", "a"] }] },
    reason: "INVALID_FIELD",
    field: "definition.tasks[1].depends_on[1]",
  },
  {
    what: "a key used twice",
    definition: { tasks: [a, b, a] },
    reason: "DUPLICATE_KEY",
    field: "definition.tasks[2].key",
    says: "tasks[0]",
  },
  {
    what: "a reference to a task that is no ancestor",
    definition: {
      tasks: [
        { ...a, params: { x: { $ref: "#/tasks/b/output" } } },
        { ...b, dependsOn: ["a"] },
      ],
    },
    reason: "INVALID_REFERENCE",
    field: "definition.tasks[0].params.x",
    says: "no ancestor",
  },
  {
    what: "a reference to no task",
    definition: task({ params: { list: [{ $ref: "#/tasks/ghost/output/x" }] } }),
    reason: "INVALID_REFERENCE",
    field: "definition.tasks[0].params.list[0]",
  },
  {
    what: "a malformed reference",
    definition: task({ params: { "a b": { $ref: "#/inputs/x" } } }),
    reason: "INVALID_REFERENCE",
    field: 'definition.tasks[0].params["a b"]',
  },
  {
    what: "a reference with something beside it",
    definition: task({ params: { x: { $ref: "#/input", also: 1 } } }),
    reason: "INVALID_REFERENCE",
    field: "definition.tasks[0].params.x",
  },
  {
    what: "a reference without a default to a task that may fail",
    definition: {
      tasks: [
        { ...a, allowFailure: true },
        { ...b, params: { $ref: "#/tasks/a/output" } },
      ],
    },
    reason: "INVALID_REFERENCE",
    field: "definition.tasks[1].params",
    says: "default",
  },
  {
    what: "an output that refers to no task",
    definition: { tasks: [a], output: { done: { $ref: "#/tasks/z/output" } } },
    reason: "INVALID_REFERENCE",
    field: "definition.output.done",
  },
  {
    what: "any_failed without a dependency that could fail",
    definition: task({ when: "WHEN_ANY_FAILED" }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].when",
  },
];

const FIELDS: readonly Wrong[] = [
  { what: "no tasks", definition: { tasks: [] }, reason: "INVALID_FIELD", field: "definition.tasks" },
  { what: "no definition", body: "{}", reason: "INVALID_FIELD", field: "definition" },
  {
    what: "a name with a space",
    definition: { ...task({}), name: "b ad" },
    reason: "INVALID_FIELD",
    field: "definition.name",
  },
  { what: "no name", definition: { ...task({}), name: "" }, reason: "INVALID_FIELD", field: "definition.name" },
  {
    what: "a name of 129 bytes",
    definition: { ...task({}), name: "n".repeat(129) },
    reason: "INVALID_FIELD",
    field: "definition.name",
  },
  {
    what: "a key with NUL",
    definition: task({ key: "a\0" }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].key",
  },
  {
    what: "a handler with half a surrogate pair",
    body: written(String.raw`{"key":"a","handler":"w\ud800"}`),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].handler",
  },
  {
    what: "a queue with a newline",
    definition: task({ queue: "a\nb" }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].queue",
  },
  {
    what: "a concurrency key with NUL",
    definition: task({ concurrency: { key: "x\0y" } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].concurrency.key",
    says: "NUL",
  },
  {
    what: "a concurrency limit of 1,001",
    definition: task({ concurrency: { key: "x", limit: 1_001 } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].concurrency.limit",
  },
  {
    what: "a wrong duration",
    definition: { ...task({}), deadline: "5 min" },
    reason: "INVALID_FIELD",
    field: "definition.deadline",
  },
  {
    what: "a duration of 367 days",
    definition: task({ timeouts: { startToClose: "367d" } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].timeouts.start_to_close",
  },
  {
    what: "priority 101",
    definition: task({ priority: 101 }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].priority",
  },
  {
    what: "a multiplier below 1",
    definition: task({ retry: { multiplier: 0.5 } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retry.multiplier",
  },
  {
    what: "a multiplier that is no number",
    definition: task({ retry: { multiplier: "NaN" } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retry.multiplier",
  },
  {
    what: "a jitter of 2",
    definition: task({ retry: { jitter: 2 } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retry.jitter",
  },
  {
    what: "a longest interval below the first",
    definition: task({ retry: { initialInterval: "2m", maxInterval: "1m" } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retry.max_interval",
  },
  {
    what: "10,001 attempts",
    definition: task({ retry: { maxAttempts: 10_001 } }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retry.max_attempts",
  },
  {
    what: "17 capabilities",
    definition: task({ requires: Array.from({ length: 17 }, (_, i) => `c${i}`) }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].requires",
  },
  {
    what: "10,001 parallel tasks",
    definition: { ...task({}), maxParallel: 10_001 },
    reason: "INVALID_FIELD",
    field: "definition.max_parallel",
  },
  {
    what: "a field that is not there",
    definition: task({ retries: 3 }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].retries",
  },
  {
    what: "an enum value that is not there",
    definition: { ...task({}), onFailure: "ON_FAILURE_EXPLODE" },
    reason: "INVALID_FIELD",
    field: "definition.on_failure",
  },
  {
    what: "a number of an enum that is not there",
    definition: task({ when: 77 }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].when",
  },
  {
    what: "a number of a conflict that is not there",
    definition: { ...task({}), concurrency: { key: "x", onConflict: 9 } },
    reason: "INVALID_FIELD",
    field: "definition.concurrency.on_conflict",
  },
  {
    what: "a list where a text belongs",
    definition: task({ handler: ["work"] }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].handler",
  },
  {
    what: "a text where a list belongs",
    definition: { tasks: "none" },
    reason: "INVALID_FIELD",
    field: "definition.tasks",
  },
  {
    what: "params twice, as a Value and as bytes",
    definition: task({ params: 1, paramsJson: bytesOf("1") }),
    reason: "INVALID_FIELD",
    field: "definition.tasks[0].params_json",
  },
];

const PAYLOADS: readonly Wrong[] = [
  {
    what: "2^53 + 1 in a Value",
    body: written('{"key":"a","handler":"work","params":{"n":[9007199254740993]}}'),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params.n[0]",
  },
  {
    what: "1e400 in a Value",
    body: written('{"key":"a","handler":"work","params":{"n":1e400}}'),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params.n",
  },
  ...[101, 200].map((depth) => ({
    what: `a Value nested ${depth} deep`,
    body: written(`{"key":"a","handler":"work","params":${nested(depth)}}`),
    reason: "INVALID_PAYLOAD",
    field: `definition.tasks[0].params${"[0]".repeat(100)}`,
  })),
  {
    what: "bytes nested 101 deep",
    definition: task({ paramsJson: bytesOf(nested(101)) }),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params",
  },
  {
    what: "bytes nested 100,000 deep",
    definition: task({ paramsJson: bytesOf(nested(100_000)) }),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params",
  },
  {
    what: "bytes that are no JSON",
    definition: task({ paramsJson: bytesOf("{a: 1}") }),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params",
  },
  {
    what: "bytes that are no UTF-8",
    definition: task({ paramsJson: Buffer.from([0x22, 0xff, 0x22]).toString("base64") }),
    reason: "INVALID_PAYLOAD",
    field: "definition.tasks[0].params",
  },
  {
    what: "params over 256 KiB",
    definition: task({ paramsJson: bytesOf(`"${"x".repeat(256 * 1024)}"`) }),
    reason: "TOO_LARGE",
    field: "definition.tasks[0].params",
  },
];

const BODIES: readonly Wrong[] = [
  { what: "no JSON at all", body: "name: bad", reason: "INVALID_PAYLOAD", field: "body" },
  { what: "half of a JSON text", body: '{"definition":{"name":"bad",', reason: "INVALID_PAYLOAD", field: "definition" },
  { what: "nothing", body: "", reason: "INVALID_PAYLOAD", field: "body" },
  { what: "a list as the request", body: "[]", reason: "INVALID_FIELD", field: "body" },
  {
    what: "a key given twice",
    body: '{"definition":{"name":"bad","name":"worse","tasks":[]}}',
    reason: "INVALID_PAYLOAD",
    field: "definition.name",
    says: "twice",
  },
  {
    what: "bytes that are no UTF-8 in a name",
    body: () =>
      Buffer.concat([Buffer.from('{"definition":{"name":"ba'), Buffer.from([0xc3, 0x28]), Buffer.from('"}}')]),
    reason: "INVALID_PAYLOAD",
    field: "definition.name",
  },
  {
    what: "a body nested 10,000 deep",
    body: () => written(`{"key":"a","handler":"work","params":${nested(10_000)}}`),
    reason: "INVALID_PAYLOAD",
    field: `definition.tasks[0].params${"[0]".repeat(246)}`,
  },
  {
    what: "a body over 4 MiB",
    body: () => written(`{"key":"a","handler":"work","params":"${"x".repeat(4 * 1024 * 1024)}"}`),
    reason: "TOO_LARGE",
    field: "body",
  },
  {
    what: "10,001 tasks",
    body: () => written(Array.from({ length: 10_001 }, (_, i) => `{"key":"t${i}","handler":"w"}`).join(",")),
    reason: "TOO_LARGE",
    field: "definition.tasks",
  },
  {
    what: "100,001 dependencies",
    body: () => written(wide(318, 315)),
    reason: "TOO_LARGE",
    field: "definition.tasks",
    says: "100000",
  },
];

/** `fanIn` roots, each a dependency of every one of `followers` tasks. */
function wide(fanIn: number, followers: number): string {
  const roots = Array.from({ length: fanIn }, (_, i) => `{"key":"r${i}","handler":"w"}`);
  const dependsOn = JSON.stringify(Array.from({ length: fanIn }, (_, i) => `r${i}`));
  const rest = Array.from({ length: followers }, (_, i) => `{"key":"f${i}","handler":"w","dependsOn":${dependsOn}}`);
  return [...roots, ...rest].join(",");
}

test.each([...GRAPH, ...FIELDS, ...PAYLOADS, ...BODIES])("$what is refused with reason and path", async (wrong) => {
  const { definition, body = { definition: { name: "bad", ...definition } }, says = "" } = wrong;

  const answer = await mesh.post(REGISTER, typeof body === "function" ? body() : body);

  expect(answer).toMatchObject({ status: 400, reason: wrong.reason, violations: [{ field: wrong.field }] });
  expect(answer.violations[0]!.description).toContain(says);
  expect(await countRows(mesh)).toEqual({ workflows: 0, definitions: 0, runs: 0 });
});

test("an inline definition is refused as a registered one is, and nothing is left of it", async () => {
  const definition = { name: "bad", tasks: [{ ...a, dependsOn: ["a"] }] };

  const answer = await mesh.post(START, { definition, idempotencyKey: "k" });

  expect(answer).toMatchObject({
    status: 400,
    reason: "GRAPH_CYCLE",
    violations: [{ field: "definition.tasks[0].depends_on[0]" }],
  });
  expect(await countRows(mesh)).toEqual({ workflows: 0, definitions: 0, runs: 0 });
});

test("many faults are told at once, at most twenty", async () => {
  const tasks = Array.from({ length: 30 }, (_, i) => ({ key: `t${i}`, handler: "w", priority: 1_000 }));

  const answer = await mesh.post(REGISTER, { definition: { name: "bad", tasks } });

  expect(answer.violations).toHaveLength(20);
  expect(answer.violations.map(({ field }) => field).slice(0, 2)).toEqual([
    "definition.tasks[0].priority",
    "definition.tasks[1].priority",
  ]);
});

async function countRows({ db }: TestMesh) {
  return db.one(
    "",
    `
  SELECT (SELECT count(*)::int FROM workflow) AS workflows, (SELECT count(*)::int FROM definition) AS definitions,
    (SELECT count(*)::int FROM run) AS runs`,
    [],
  );
}
