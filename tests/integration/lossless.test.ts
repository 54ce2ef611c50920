import { defineTask } from "@runmesh/client";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { createWorker, nonRetryable } from "@runmesh/worker";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";

let mesh: TestMesh;
let worker: MeshWorker;
beforeAll(async () => {
  mesh = await startMesh();
  worker = await mesh.worker({ handlers: ["work", "__proto__"] });
});
afterAll(() => mesh[Symbol.asyncDispose]());

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

/** What a program of another language may send, and JavaScript would lose when it parsed it. */
const EXACT = [
  ["an integer beyond 2^53", "9007199254740993"],
  ["a number beyond a double", "1e400"],
  ["a number below a double", "-1E-4000"],
  ["minus zero", "-0"],
  ["trailing zeros", "1.10"],
  ["a very long integer", "123456789012345678901234567890"],
  ["NUL and half a surrogate pair, escaped", String.raw`"a\u0000b\ud800c"`],
  ["emoji and right-to-left text", '"👩‍🚀 שלום مرحبا"'],
  ["keys that JavaScript knows", '{"__proto__":{"x":1},"constructor":2,"toString":null}'],
  ["a key given twice", '{"a":1,"a":9007199254740993}'],
  ["white space", '[ 1 ,\n\t{ "a" : 2 } ]'],
] as const;

test.each(EXACT)("%s comes back as it was sent, through input, references, output and run", async (_what, json) => {
  const runId = await mesh.given.run(
    {
      tasks: [
        { key: "first", params: `{"own": ${json}, "given": {"$ref": "#/input/x"}}` },
        { key: "second", params: `[{"$ref": "#/tasks/first/output/y"}, {"$ref": "#/input"}]` },
      ],
      output: `{"first":{"$ref":"#/tasks/first/output"},"whole":{"$ref":"#/tasks/second/output"}}`,
    },
    { input: `{"x":${json}}` },
  );

  const first = await worker.acquireOne();
  expect(textOf(first.paramsJson)).toBe(`{"own":${ownOf(json)},"given":${json}}`);
  expect(await worker.complete(first, `{"y":${json}}`)).toBe("accepted");
  const second = await worker.acquireOne();
  expect(textOf(second.paramsJson)).toBe(`[${json},{"x":${json}}]`);
  expect(await worker.complete(second, json)).toBe("accepted");

  const run = await mesh.ended(runId);
  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(textOf(run.inputJson)).toBe(`{"x":${json}}`);
  expect(textOf(run.outputJson)).toBe(`{"first":{"y":${json}},"whole":${json}}`);
  const { task } = await mesh.tasks.getTask({ runId, key: "second" });
  expect(textOf(task!.outputJson)).toBe(json);
});

/** Params with references are woven anew, so white space and the first of twins are not kept beside them. */
function ownOf(json: string): string {
  if (json.startsWith("[ ")) return '[1,{"a":2}]';
  return json.startsWith('{"a":1') ? '{"a":9007199254740993}' : json;
}

test("params without a reference reach the worker byte for byte", async () => {
  const params = '{ "a":1, "a":2 ,"n": 9007199254740993e0 }\n';
  await mesh.given.run({ tasks: [{ key: "t", params }] });

  const task = await worker.acquireOne();

  expect(textOf(task.paramsJson)).toBe(params);
  expect(await worker.complete(task)).toBe("accepted");
});

test("bytes sent in a JSON request are kept digit for digit", async () => {
  const inputJson = Buffer.from('{"n":9007199254740993,"e":1e400}').toString("base64");
  const definition = { name: "bytes", tasks: [{ key: "t", handler: "work", params: { $ref: "#/input" } }] };

  const started = await mesh.post("runmesh.run.v1.RunService/StartRun", { definition, inputJson });
  const task = await worker.acquireOne();

  expect(started.status).toBe(200);
  expect(textOf(task.paramsJson)).toBe('{"n":9007199254740993,"e":1e400}');
  expect(await worker.complete(task)).toBe("accepted");
});

test("a Value of a JSON request keeps odd keys, half pairs, NUL and the largest exact integer", async () => {
  const input = String.raw`{"__proto__":{"x":[]},"constructor":"\ud800\u0000","n":9007199254740991,"z":-0}`;
  const body = `{"definition":{"name":"value","tasks":[{"key":"t","handler":"work","params":{"$ref":"#/input"}}]},"input":${input}}`;

  const started = await mesh.post("runmesh.run.v1.RunService/StartRun", body);
  const task = await worker.acquireOne();

  expect(started).toMatchObject({ status: 200, json: { created: true } });
  expect(textOf(task.paramsJson)).toBe(input);
  expect(await worker.complete(task)).toBe("accepted");
});

test("a task, a handler and a label may be called __proto__", async () => {
  const definition = {
    name: "__proto__",
    tasks: [
      { key: "__proto__", handler: "__proto__" },
      { key: "constructor", handler: "work", dependsOn: ["__proto__"] },
      { key: "toString", handler: "work", params: { x: { $ref: "#/tasks/__proto__/output/__proto__" } } },
    ],
  };
  const body = JSON.stringify({ definition, labels: {} }).replace('"labels":{}', '"labels":{"__proto__":"x"}');
  const { json } = await mesh.post("runmesh.run.v1.RunService/StartRun", body);
  const runId = BigInt((json as { runId: string }).runId);

  const first = await worker.acquireOne();
  expect(first).toMatchObject({ key: "__proto__", handler: "__proto__", workflow: "__proto__" });
  expect(await worker.complete(first, '{"__proto__":5}')).toBe("accepted");
  const rest = await worker.acquire(10);
  expect(rest.map((task) => [task.key, textOf(task.paramsJson)]).sort()).toEqual([
    ["constructor", "null"],
    ["toString", '{"x":5}'],
  ]);
  for (const task of rest) expect(await worker.complete(task)).toBe("accepted");

  const run = await mesh.ended(runId);
  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(Object.entries(run.labels)).toEqual([["__proto__", "x"]]);
  const { runs } = await mesh.runs.listRuns({ filter: { labels: Object.fromEntries([["__proto__", "x"]]) } });
  expect(runs.map(({ id }) => id)).toEqual([runId]);
});

const ODD = "a\0b\u202ec\u{1f680}שלום\td\x1b[31m";
const SHOWN = `${String.raw`a\u0000b\u202ec🚀שלום`}\t${String.raw`d\u001b[31m`}`;

test("what an error and a log say is shown escaped where it could not be printed", async () => {
  const runId = await mesh.given.run({ tasks: [{ key: "t", retry: { maxAttempts: 1 } }] });
  const task = await worker.acquireOne();
  const detailsJson = Buffer.from(String.raw`{"n":9007199254740993,"t":"\ud800\u0000"}`);

  const error = { type: ODD, message: ODD, retryable: false, detailsJson };
  const log = [{ level: 2, message: ODD }];
  expect(await worker.fail(task, error, { log })).toBe("accepted");

  const run = await mesh.ended(runId);
  expect(run.failure).toMatchObject({ taskKey: "t", errorType: SHOWN, message: SHOWN });
  const { attempts } = await mesh.tasks.listAttempts({ runId });
  expect(attempts[0]!.error).toMatchObject({ type: SHOWN, message: SHOWN });
  expect(textOf(attempts[0]!.error!.detailsJson)).toBe(textOf(detailsJson));
  const { lines } = await mesh.tasks.listLogs({ taskId: task.taskId });
  expect(lines).toMatchObject([{ message: SHOWN, attempt: 1, level: 2 }]);
});

test("half a surrogate pair cannot be sent as text: it is refused with its path, and the lease lives on", async () => {
  await mesh.given.run({ tasks: [{ key: "t" }] });
  const task = await worker.acquireOne();
  const { sessionId, sessionToken } = worker.session;
  const failed = { taskId: String(task.taskId), fence: String(task.fence), error: { message: "HALF" } };
  const body = JSON.stringify({ sessionId: String(sessionId), sessionToken, tasks: [failed] });

  const answer = await mesh.post("runmesh.lease.v1.LeaseService/FailTasks", body.replace("HALF", String.raw`\ud800`));

  expect(answer).toMatchObject({
    status: 400,
    reason: "INVALID_FIELD",
    violations: [{ field: "tasks[0].error.message" }],
  });
  expect(await worker.complete(task)).toBe("accepted");
});

test("a handler that throws and logs half a surrogate pair is heard", async () => {
  const odd = defineTask({ name: "odd", input: z.unknown(), output: z.null() });
  const sdkWorker = createWorker({
    url: mesh.url,
    handlers: [
      odd.handle((_, context) => {
        context.log.info("log \ud800");
        throw nonRetryable(Object.assign(new Error("message \ud800"), { name: "Odd\ud800" }));
      }),
    ],
  });
  await sdkWorker.start();

  const runId = await mesh.given.run({ tasks: [{ key: "t", handler: "odd" }] });
  const run = await mesh.ended(runId);
  await sdkWorker.stop();

  expect(run.state).toBe(Run_State.FAILED);
  expect(run.failure!.message).toMatch(/^message (\ufffd|\\ud800)$/);
  const { lines } = await mesh.tasks.listLogs({ taskId: runId << 20n });
  expect(lines.map(({ message }) => message)).toEqual([expect.stringMatching(/^log (\ufffd|\\ud800)$/)]);
});
