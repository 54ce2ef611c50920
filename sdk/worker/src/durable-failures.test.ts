/** Steps and children that fail: what the handler is given, what is kept of it, and what the next attempt does anew. */
import { create } from "@bufbuild/protobuf";
import { StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { expect, test } from "vitest";
import { startTask } from "../test/recorded-task.ts";
import type { Durable } from "./durable.ts";
import { readFailure } from "./failure.ts";
import { nonRetryable, retryAfter } from "./index.ts";

test("a step's failure that the handler lives on from is the same on each pass", async () => {
  const task = startTask();
  let runs = 0;
  const handler = async (ctx: Durable) => {
    try {
      await ctx.step("pay", () => {
        if (++runs === 1) throw new RangeError("network");
        return "paid";
      });
    } catch (error) {
      const decided = await ctx.waitForSignal("human");
      return [(error as Error).name, (error as Error).message, decided];
    }
    return ctx.step("ship", () => "shipped");
  };

  const first = await task.pass(handler);
  task.signals.set("human", ["true"]);
  const second = await task.pass(handler);

  expect(first).toBe("suspended");
  expect(second).toEqual(["RangeError", "network", true]);
  expect(runs).toBe(1);
});

test("a failure that ends the handler after other steps is tried anew, and those steps do not run again", async () => {
  const task = startTask();
  const ran: string[] = [];
  const step = (ctx: Durable, name: string) => ctx.step(name, () => ran.push(name));
  const handler = async (ctx: Durable) => {
    try {
      await ctx.step("pay", () => {
        if (ran.push("pay") < 5) throw new Error("network");
      });
    } catch (error) {
      await step(ctx, "note");
      throw error;
    }
    await step(ctx, "ship");
    return step(ctx, "note");
  };

  await expect(task.pass(handler)).rejects.toMatchObject({ message: "network", forget: { steps: [0], from: 1 } });
  await expect(task.pass(handler)).rejects.toThrow("network");
  await expect(task.pass(handler)).rejects.toThrow("network");
  const last = await task.pass(handler);

  expect(ran).toEqual(["pay", "note", "pay", "pay", "pay", "ship"]);
  expect(last).toBe(2);
});

test("a child's failure that ends the handler after a step is tried anew, and the way may be another then", async () => {
  const task = startTask();
  let notes = 0;
  const handler = async (ctx: Durable) => {
    const child = await ctx.startRun("child");
    try {
      await child.result();
    } catch (error) {
      await ctx.step("note", () => ++notes);
      throw error;
    }
    return ctx.step("ship", () => "shipped");
  };
  await task.pass(handler);
  const error = { type: "Torn", message: "apart", state: "FAILED", taskKey: "t" };
  task.record.push(create(StepSchema, { position: 1, kind: StepKind.RESULT, name: "child", done: 2, error }));

  await expect(task.pass(handler)).rejects.toMatchObject({ forget: { steps: [1], from: 2 } });
  task.signals.set("child", ["1"]);
  const answer = await task.pass(handler);

  expect([answer, notes]).toEqual(["shipped", 1]);
});

test("what a step said of its failure counts when it ends the handler, on the pass that replays it too", async () => {
  const verdicts: unknown[] = [];
  for (const thrown of [new Error("plain"), nonRetryable(new Error("final")), retryAfter("30s", new Error("busy"))]) {
    const task = startTask();
    const handler = (ctx: Durable) => ctx.step("a", () => Promise.reject(thrown));
    const failure = async () => {
      const { retryable, retryAfterMs, type, message } = readFailure(await task.pass(handler).catch((error) => error));
      return [type, message, retryable, retryAfterMs];
    };
    task.forget = () => undefined;
    verdicts.push(await failure(), await failure());
  }

  expect(verdicts).toEqual([
    ["Error", "plain", true, undefined],
    ["Error", "plain", true, undefined],
    ["Error", "final", false, undefined],
    ["Error", "final", false, undefined],
    ["Error", "busy", true, 30_000],
    ["Error", "busy", true, undefined],
  ]);
});

test("an answer that cannot be recorded fails its step on each pass, and takes no other step along", async () => {
  const task = startTask();
  task.refuses = (step) => step.name === "deep" && step.error === undefined;
  let runs = 0;
  const handler = async (ctx: Durable) => {
    const ends = await Promise.allSettled([
      ctx.step("good", () => 1),
      ctx.step("deep", () => ++runs),
      ctx.step("big", () => 5n),
    ]);
    await ctx.waitForSignal("go");
    return ends.map((end) => (end.status === "fulfilled" ? end.value : `${end.reason.name}: ${end.reason.message}`));
  };

  await task.pass(handler);
  task.signals.set("go", ["1"]);
  const answer = await task.pass(handler);

  expect(answer).toEqual([
    1,
    'INVALID_PAYLOAD: what step "deep" answered is not recorded: too deep',
    "INVALID_PAYLOAD: what step big answered is not JSON: Do not know how to serialize a BigInt",
  ]);
  expect(runs).toBe(1);
});
