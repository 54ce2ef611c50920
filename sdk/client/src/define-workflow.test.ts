import { toBinary } from "@bufbuild/protobuf";
import { type Definition, DefinitionSchema, OnFailure, When } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { expect, test } from "vitest";
import { z } from "zod";
import { type AnyWorkflow, compileDefinition, defineTask, defineWorkflow, orElse, type Ref } from "./index.ts";

const any = z.any();
const echo = defineTask({ name: "echo", input: any, output: any });
const charge = defineTask({
  name: "charge",
  input: z.object({ orderId: z.string(), cents: z.number().int() }),
  output: z.object({ chargeId: z.string(), note: z.string().optional(), lines: z.array(z.string()) }),
  retry: { maxAttempts: 5, nonRetryable: ["CardDeclined"] },
  timeout: "30s",
});

function json(bytes: unknown): unknown {
  return JSON.parse(new TextDecoder().decode(bytes as Uint8Array));
}

function paramsOf(workflow: AnyWorkflow, key: string): unknown {
  return json(taskOf(compileDefinition(workflow), key).paramsPayload.value);
}

function taskOf(definition: Definition, key: string) {
  const task = definition.tasks.find((t) => t.key === key);
  if (task === undefined) throw new Error(`no task ${key}`);
  return task;
}

function wire(draw: (input: Ref<{ a: string; "x/y~z": string }>) => unknown): unknown {
  const workflow = defineWorkflow({
    name: "w",
    input: z.object({ a: z.string(), "x/y~z": z.string() }),
    build: (w) => void w.task("t", echo, draw(w.input)),
  });
  return paramsOf(workflow, "t");
}

test("references compile to JSON pointers and mix with literals", () => {
  const order = defineWorkflow({
    name: "order",
    input: z.object({ id: z.string(), cents: z.number() }),
    build(w) {
      const paid = w.task("a/charge", charge, { orderId: w.input.id, cents: 7 });
      w.task("echo", echo, { first: paid.output.lines[0], deep: [{ note: orElse(paid.output.note, "none") }] });
      return { chargeId: paid.output.chargeId, fixed: true };
    },
  });

  expect(paramsOf(order, "a/charge")).toEqual({ orderId: { $ref: "#/input/id" }, cents: 7 });
  expect(paramsOf(order, "echo")).toEqual({
    first: { $ref: "#/tasks/a~1charge/output/lines/0" },
    deep: [{ note: { $ref: "#/tasks/a~1charge/output/note", default: "none" } }],
  });
  expect(json(compileDefinition(order).outputPayload.value)).toEqual({
    chargeId: { $ref: "#/tasks/a~1charge/output/chargeId" },
    fixed: true,
  });
});

test("fields with / and ~ are escaped", () => {
  expect(wire((input) => input["x/y~z"])).toEqual({ $ref: "#/input/x~1y~0z" });
});

test("data that looks like a reference is wrapped in $literal", () => {
  expect(wire(() => ({ a: { $ref: "#/input/a" }, b: { $literal: { $ref: 1 } } }))).toEqual({
    a: { $literal: { $ref: "#/input/a" } },
    b: { $literal: { $literal: { $ref: 1 } } },
  });
});

test("a __proto__ key and a Date reach the definition as JSON has them", () => {
  const at = new Date(0);

  expect(wire(() => JSON.parse('{"__proto__": {"x": 1}}'))).toEqual(JSON.parse('{"__proto__": {"x": 1}}'));
  expect(wire(() => ({ at, gone: undefined, list: [undefined] }))).toEqual({ at: at.toJSON(), list: [null] });
});

test("a field of a reference with a fallback falls back on the fallback's field", () => {
  expect(wire((input) => (orElse(input as never, { a: "x" } as never) as { a: unknown }).a)).toEqual({
    $ref: "#/input/a",
    default: "x",
  });
});

test.each<[string, (input: Ref<{ a: string }>) => unknown, RegExp]>([
  ["interpolated", (input) => `${input.a}`, /#\/input\/a has no value while the graph is built/],
  ["added", (input) => (input.a as unknown as number) + 1, /has no value/],
  ["written as JSON", (input) => JSON.stringify({ x: input.a }), /has no value/],
  ["spread", (input) => ({ ...input }), /has no value/],
  ["iterated", (input) => [...(input.a as unknown as string)], /has no value/],
  ["looked into", (input) => "a" in input, /has no value/],
  ["changed", (input) => Object.assign(input, { a: 1 }), /has no value/],
  ["put beside a $ref key", (input) => ({ $ref: input.a }), /cannot stand inside/],
  ["a bigint instead", () => ({ n: 1n }), /tasks\.t\.params\.n: a bigint is not JSON/],
  ["NaN instead", () => [Number.NaN], /tasks\.t\.params\[0\]: NaN is not JSON/],
])("a reference that is %s throws at once", (_, draw, message) => {
  expect(() => wire(draw)).toThrow(message);
});

test("data in a circle is refused with its path", () => {
  const circle: Record<string, unknown> = {};
  circle.self = circle;

  expect(() => wire(() => circle)).toThrow(/nested deeper than 100, or in a circle/);
});

test("awaiting a reference does not hang", async () => {
  let seen: unknown;
  wire((input) => {
    seen = input.a;
    return null;
  });

  expect((await Promise.all([seen])).length).toBe(1);
});

test("a reference of another workflow is refused", () => {
  let foreign: unknown;
  wire((input) => {
    foreign = input.a;
    return null;
  });

  expect(() => wire(() => foreign)).toThrow(/belongs to another workflow/);
});

test("a second task with a key is refused with DUPLICATE_KEY", () => {
  const define = () =>
    defineWorkflow({
      name: "twice",
      input: any,
      build(w) {
        w.task("a", echo, 1);
        w.task("a", echo, 2);
      },
    });

  expect(define).toThrow(expect.objectContaining({ reason: "DUPLICATE_KEY", field: "tasks.a" }));
});

test("a task's settings reach the definition, and a place sets them anew", () => {
  const workflow = defineWorkflow({
    name: "settings",
    input: z.object({ customer: z.string() }),
    deadline: "1h",
    onFailure: "finish",
    maxParallel: 3,
    concurrency: { key: (input) => input.customer, limit: 2, onConflict: "queue" },
    build(w) {
      const first = w.task(
        "first",
        charge,
        { orderId: "1", cents: 1 },
        { allowFailure: true, retry: { maxAttempts: 1 } },
      );
      w.task("last", echo, null, {
        after: [first],
        when: "all_done",
        priority: 5,
        queue: "slow",
        requires: ["gpu"],
        exclusive: true,
        heartbeatTimeout: "10s",
        startTimeout: "1m",
      });
    },
  });
  const definition = compileDefinition(workflow);

  expect(definition).toMatchObject({ deadline: "1h", onFailure: OnFailure.FINISH, maxParallel: 3 });
  expect(definition.concurrency).toMatchObject({ key: '{"$ref":"#/input/customer"}', limit: 2 });
  expect(taskOf(definition, "first")).toMatchObject({
    handler: "charge",
    allowFailure: true,
    retry: { maxAttempts: 1, nonRetryable: ["CardDeclined"] },
    timeouts: { startToClose: "30s" },
  });
  expect(taskOf(definition, "last")).toMatchObject({
    dependsOn: ["first"],
    when: When.ALL_DONE,
    priority: 5,
    queue: "slow",
    requires: ["gpu"],
    exclusive: true,
    timeouts: { heartbeat: "10s", scheduleToStart: "1m" },
  });
  expect(definition.outputPayload.case).toBeUndefined();
});

test("the same workflow compiles to the same bytes", () => {
  const define = () =>
    defineWorkflow({
      name: "same",
      input: z.object({ b: z.string(), a: z.string() }),
      build: (w) => ({ b: w.input.b, a: w.input.a }),
    });

  expect(toBinary(DefinitionSchema, compileDefinition(define()))).toEqual(
    toBinary(DefinitionSchema, compileDefinition(define())),
  );
});
