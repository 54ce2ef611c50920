import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { RunFailedError } from "@runmesh/client";
import { StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { expect, test } from "vitest";
import { startTask } from "../test/recorded-task.ts";
import type { Durable } from "./durable.ts";
import { nonRetryable } from "./index.ts";

test("a recorded step never runs again, and gets the same key each time it does run", async () => {
  const task = startTask();
  const ran: string[] = [];
  const keys: string[] = [];
  const handler = (failing: boolean) => async (ctx: Durable) => {
    const a = await ctx.step("a", (key) => {
      ran.push("a");
      keys.push(key);
      return { at: new Date(0), none: undefined };
    });
    const b = await ctx.step("a", (key) => {
      ran.push("b");
      keys.push(key);
      if (failing) throw new Error("cut off");
      return 2;
    });
    await ctx.step("nothing", () => {});
    return [a, b];
  };

  await expect(task.pass(handler(true))).rejects.toThrow("cut off");
  const answer = await task.pass(handler(false));
  const again = await task.pass(handler(false));

  expect(ran).toEqual(["a", "b", "b"]);
  expect(keys).toEqual(["7/k/a/0", "7/k/a/1", "7/k/a/1"]);
  expect(answer).toEqual([{ at: "1970-01-01T00:00:00.000Z" }, 2]);
  expect(again).toEqual(answer);
});

test("a changed order fails NON_DETERMINISTIC, whatever the handler makes of it, and names both calls", async () => {
  const task = startTask();
  await task.pass(async (ctx) => [await ctx.step("a", () => 1), await ctx.step("b", () => 2)]);

  const changed = task.pass(async (ctx) => {
    await ctx.step("b", () => 2).catch(() => undefined);
    return ctx.step("a", () => 1);
  });

  await expect(changed).rejects.toMatchObject({
    name: "NON_DETERMINISTIC",
    message: expect.stringContaining('step "a" before, and is step "b" now'),
    fault: { name: "NON_DETERMINISTIC" },
  });
});

test("steps side by side may end in any order, and each pass calls what follows them in the same", async () => {
  const task = startTask();
  const calls: string[][] = [];
  const handler = (cut: boolean) => async (ctx: Durable) => {
    const order: string[] = [];
    calls.push(order);
    const branch = async (name: string, ms: number) => {
      await ctx.step(`${name}1`, () => delay(ms));
      order.push(name);
      if (cut && name === "slow") throw new Error("cut");
      return ctx.step(`${name}2`, () => name);
    };
    return Promise.all([branch("slow", 30), branch("fast", 1), branch("middle", 10)]);
  };

  await expect(task.pass(handler(true))).rejects.toThrow("cut");
  const answer = await task.pass(handler(false));

  expect(answer).toEqual(["slow", "fast", "middle"]);
  expect(calls).toEqual([
    ["fast", "middle", "slow"],
    ["fast", "middle", "slow"],
  ]);
});

test("a handler that waits is suspended when nothing else runs, and is not answered any more", async () => {
  const task = startTask();
  const seen: string[] = [];
  const handler = async (ctx: Durable) => {
    const slow = ctx.step("slow", () => delay(20, "slow"));
    const go = ctx.waitForSignal<number>("go", { timeout: "1d" });
    seen.push(await slow);
    const got = await go;
    await ctx.sleep("1ms");
    return got;
  };

  const first = await task.pass(handler);
  task.signals.set("go", ["42"]);
  const second = await task.pass(handler);

  expect(first).toBe("suspended");
  expect(task.suspensions).toEqual([["go"]]);
  expect(second).toBe(42);
  expect(seen).toEqual(["slow", "slow"]);
  expect(task.record.map((step) => [step.kind, step.name])).toContainEqual([StepKind.SLEEP, "sleep"]);
});

test("two waits on one name are two calls, and each takes one signal in its order", async () => {
  const task = startTask();
  task.signals.set("go", ["1", "2", "3"]);

  const answer = await task.pass(async (ctx) => [
    ...(await Promise.all([ctx.waitForSignal("go"), ctx.waitForSignal("go")])),
    await ctx.waitForSignal("go"),
  ]);

  expect(answer).toEqual([1, 2, 3]);
});

test("a step's non-retryable error is recorded, and is thrown on each pass until it ended the handler", async () => {
  const task = startTask();
  let runs = 0;
  const caught = async (ctx: Durable) => {
    const name = await ctx
      .step("pay", () => {
        runs++;
        throw nonRetryable(new RangeError("declined"));
      })
      .catch((error: Error) => error.name);
    await ctx.step("refund", () => 1);
    return name;
  };

  expect([await task.pass(caught), await task.pass(caught), runs]).toEqual(["RangeError", "RangeError", 1]);
  const let_through = startTask();
  const failing = (ctx: Durable) => ctx.step("pay", () => Promise.reject(nonRetryable(new RangeError("declined"))));
  await expect(let_through.pass(failing)).rejects.toMatchObject({
    message: "declined",
    forget: { steps: [0], from: 0 },
  });
});

test("a child that failed and ended the handler is named, to be started anew; one that is caught is not", async () => {
  const task = startTask();
  const handler = async (ctx: Durable) => {
    const child = await ctx.startRun("child", { n: 1 });
    return child.result();
  };
  expect(await task.pass(handler)).toBe("suspended");
  const error = { type: "Torn", message: "apart", state: "FAILED", taskKey: "t" };
  task.record.push(
    create(StepSchema, { position: 1, kind: StepKind.RESULT, name: "child", done: 2, error: { ...error } }),
  );

  const failed = task.pass(handler);

  await expect(failed).rejects.toBeInstanceOf(RunFailedError);
  await expect(failed).rejects.toMatchObject({
    runId: "101",
    taskKey: "t",
    errorType: "Torn",
    forget: { steps: [1], from: 0 },
  });
  task.record.splice(1);
  task.record[0]!.renew = true;
  expect(await task.pass(handler)).toBe("suspended");
  expect(task.started).toEqual([101n, 102n]);
});

test("V-16 an abort ends every call that waits, and nothing of it is recorded", async () => {
  const task = startTask();
  const aborted = new Error("aborted");

  const pass = task.pass(async (ctx) => {
    const waiting = ctx.step("a", () => new Promise(() => {})).catch((error) => error);
    setImmediate(() => ctx.journal.abort(aborted));
    const first = await waiting;
    return [first, await ctx.step("b", () => 1).catch((error) => error)];
  });

  expect(await pass).toEqual([aborted, aborted]);
  expect(task.record).toEqual([]);
});

test("what cannot be recorded is refused at once and not tried again", async () => {
  const task = startTask();

  await expect(task.pass((ctx) => ctx.step("a", () => "x".repeat(300_000)))).rejects.toMatchObject({
    name: "TOO_LARGE",
  });
  await expect(task.pass((ctx) => ctx.step("", () => 1))).rejects.toMatchObject({ name: "INVALID_FIELD" });
  await expect(task.pass((ctx) => ctx.waitForSignal("no way"))).rejects.toMatchObject({ name: "INVALID_FIELD" });
  await expect(task.pass((ctx) => ctx.sleep("soon"))).rejects.toThrow("a duration is such as");
});
