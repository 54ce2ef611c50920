import { Code } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { expect, test } from "vitest";
import { z } from "zod";
import { type FakeMesh, refusal, startFakeMesh } from "../test/fake-mesh.ts";
import { connect, defineTask, defineWorkflow } from "./index.ts";

const any = z.any();
const echo = defineTask({ name: "echo", input: any, output: any });

function orderWorkflow() {
  return defineWorkflow({
    name: "order",
    input: z.object({ id: z.string(), tries: z.number().default(3) }),
    build: (w) => ({ answer: w.task("echo", echo, w.input.id).output }),
  });
}

function inputOf(mesh: FakeMesh, i = 0): unknown {
  const value = mesh.starts[i]!.inputPayload.value;
  return JSON.parse(new TextDecoder().decode(value as Uint8Array));
}

const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const running = { id: 1n, state: Run_State.RUNNING, sequence: 1n };
const succeeded = { id: 1n, state: Run_State.SUCCEEDED, sequence: 2n, outputJson: bytes({ answer: "x" }) };
const event = (type: EventType, sequence: bigint, run?: object) => ({
  kind: { case: "event" as const, value: { type, sequence, runId: 1n } },
  sequence,
  ...(run && { run }),
});

test("a start registers the definition once and starts by its content", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url, apiKey: "rm_1_secret" });
  const order = orderWorkflow();

  const run = await mesh.start(
    order,
    { id: "7" },
    { idempotencyKey: "k", labels: { a: "b" }, dueTime: new Date(9_000) },
  );
  await connect({ url: fake.url, apiKey: "rm_1_secret" }).start(order, { id: "8" });

  expect(run).toMatchObject({ id: "1", created: true, version: 1 });
  expect(fake.registerCount).toBe(1);
  expect(fake.starts[0]).toMatchObject({
    workflow: "order",
    contentHash: [...fake.definitions.keys()][0],
    idempotencyKey: "k",
    labels: { a: "b" },
    dueTime: { seconds: 9n },
  });
  expect(inputOf(fake)).toEqual({ id: "7", tries: 3 });
  expect(fake.headers[0]!.get("authorization")).toBe("Bearer rm_1_secret");
});

test("a definition that the server has forgotten is registered again", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url });
  const order = orderWorkflow();
  await mesh.start(order, { id: "7" });
  fake.definitions.clear();

  await mesh.start(order, { id: "8" });

  expect(fake.registerCount).toBe(2);
  expect(fake.starts.length).toBe(2);
});

test("a refused start is repeated under its request id, and other refusals are not", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url });
  const wait = { retryAfter: { seconds: 0n, nanos: 1_000_000 } };
  fake.refusals.push(refusal(Reason.UNAVAILABLE, Code.Unavailable, wait));

  const run = await mesh.startByName("order", { id: 1 }, { version: 2 });
  fake.refusals.push(
    refusal(Reason.IDEMPOTENCY_MISMATCH, Code.AlreadyExists, {
      violations: [{ field: "idempotency_key", reason: Reason.IDEMPOTENCY_MISMATCH, description: "was used" }],
    }),
  );
  const refused = mesh.startByName("order", {});

  expect(run.id).toBe("1");
  expect(fake.starts[0]!.version).toBe(2);
  expect(fake.starts[0]!.requestId).toMatch(/^[0-9a-f-]{36}$/);
  await expect(refused).rejects.toMatchObject({
    name: "MeshError",
    reason: "IDEMPOTENCY_MISMATCH",
    field: "idempotency_key",
    requestId: "r-1",
    advice: "Do.",
  });
});

test("input that the schema refuses is not sent, and the path is named", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url });

  const refused = mesh.start(orderWorkflow(), { id: 7 } as never);

  await expect(refused).rejects.toMatchObject({ reason: "INVALID_FIELD", field: "input.id" });
  expect(fake.starts).toEqual([]);
});

test("a batch answers each item on its own, in order", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url });
  const items = Array.from({ length: 1_200 }, (_, i) => ({ input: { id: String(i) } }));
  items[1] = { input: { id: 1 as never } };

  const results = await mesh.startMany(orderWorkflow(), items);

  expect(results.length).toBe(1_200);
  expect(results[0]).toMatchObject({ ok: true, run: { id: "1" } });
  expect(results[1]).toMatchObject({ ok: false, error: { reason: "INVALID_FIELD", field: "items[1].input.id" } });
  expect(results[1_199]).toMatchObject({ ok: true, run: { id: "1199" } });
  expect(inputOf(fake, 1_198)).toEqual({ id: "1199", tries: 3 });
});

test("a result comes although the run is asked for thrice and the server was away once", async () => {
  await using fake = await startFakeMesh();
  const mesh = connect({ url: fake.url, attempts: 1 });
  fake.answers.push(running, refusal(Reason.UNAVAILABLE, Code.Unavailable), succeeded);
  const run = await mesh.start(orderWorkflow(), { id: "7" });

  const result = await run.result();

  expect(result).toEqual({ answer: "x" });
  expect(fake.answers).toEqual([]);
});

test("the result of a failed run rejects with the task and its error", async () => {
  await using fake = await startFakeMesh();
  const failed = {
    id: 5n,
    state: Run_State.FAILED,
    sequence: 3n,
    failure: { taskKey: "charge", errorType: "CardDeclined", message: "no funds" },
  };
  fake.answers.push(failed);

  const result = connect({ url: fake.url }).run("5").result();

  await expect(result).rejects.toMatchObject({
    name: "RunFailedError",
    message: "run 5 failed: task charge: CardDeclined: no funds",
    runId: "5",
    state: "FAILED",
    taskKey: "charge",
    errorType: "CardDeclined",
  });
});

test("a watch tells each event once, from the first to the run's end", async () => {
  await using fake = await startFakeMesh();
  fake.streams.push(
    [event(EventType.TASK_SUCCEEDED, 2n), { kind: { case: "heartbeat", value: {} }, sequence: 2n }],
    [
      event(EventType.TASK_SUCCEEDED, 2n),
      event(EventType.RUN_TIMED_OUT, 3n, { ...running, state: Run_State.TIMED_OUT }),
    ],
  );

  const seen = [];
  for await (const { sequence, type } of connect({ url: fake.url }).run("1").watch()) seen.push([sequence, type]);

  expect(seen).toEqual([
    [1, "run.created"],
    [2, "task.succeeded"],
    [3, "run.timed_out"],
  ]);
});

test("a wait for a result ends with its signal", async () => {
  await using fake = await startFakeMesh();
  const controller = new AbortController();
  const result = connect({ url: fake.url }).run("1").result({ signal: controller.signal });

  controller.abort(new Error("enough"));

  await expect(result).rejects.toThrow();
});

test("a mesh that is down is UNAVAILABLE, and a wrong url is told at once", async () => {
  const mesh = connect({ url: "http://127.0.0.1:1", attempts: 2 });

  await expect(mesh.startByName("order")).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  await expect(mesh.run("1").get()).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  expect(() => connect({ url: "localhost:7400" })).toThrow(/url must be such as/);
  expect(() => mesh.run("seven")).toThrow(/positive integer/);
});
