/** What a handler leaves behind, and what ends it. */
import { setTimeout as delay } from "node:timers/promises";
import { StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { expect, onTestFinished, test } from "vitest";
import { startTask } from "../test/recorded-task.ts";
import type { Durable } from "./durable.ts";

function listenForUnhandled(): unknown[] {
  const unhandled: unknown[] = [];
  const listen = (error: unknown) => unhandled.push(error);
  process.on("unhandledRejection", listen);
  onTestFinished(() => void process.off("unhandledRejection", listen));
  return unhandled;
}

test("a handler that has ended is not suspended for what it left waiting", async () => {
  const task = startTask();
  task.signals.set("child", ["1"]);

  const answer = await task.pass(async (ctx) => {
    const child = await ctx.startRun("child");
    return Promise.race([child.result(), ctx.sleep("1h"), ctx.waitForSignal("never")]);
  });
  await delay(300);

  expect(answer).toBe(1);
  expect(task.suspensions).toEqual([]);
});

test("after its handler a context runs no step, and a step that is left running is not recorded", async () => {
  const task = startTask();
  const ran: string[] = [];
  let left: Durable | undefined;

  await task.pass(async (ctx) => {
    left = ctx;
    void ctx.step("slow", () => delay(50).then(() => ran.push("slow")));
    await ctx.step("done", () => 1);
  });
  const late = left!.step("late", () => ran.push("late"));

  await expect(late).rejects.toThrow("the handler has ended");
  await delay(100);
  expect(ran).toEqual(["slow"]);
  expect(task.record.map((step) => step.name)).toEqual(["done"]);
});

test("calls that nobody awaits any more do not end the process when the attempt is aborted, or they fail", async () => {
  const task = startTask();
  const unhandled = listenForUnhandled();

  const pass = task.pass(async (ctx) => {
    const waits = [ctx.step("a", () => new Promise(() => {})), ctx.sleep("1h"), ctx.waitForSignal("go")];
    const child = await ctx.startRun("child");
    void child.result();
    void ctx.step("fails", () => Promise.reject(new Error("nobody listens")));
    setTimeout(() => ctx.journal.abort(new Error("aborted")), 20);
    await waits[0];
  });

  await expect(pass).rejects.toThrow("aborted");
  await delay(50);
  expect(unhandled).toEqual([]);
});

test("a journal knows whether the handler was given an abort for an answer", async () => {
  const seen: boolean[] = [];
  const abort = (ctx: Durable) => ctx.journal.abort(new Error("stopping"));

  await startTask().pass(async (ctx) => {
    setTimeout(() => abort(ctx), 10);
    await ctx.step("a", () => delay(1_000)).catch(() => undefined);
    seen.push(ctx.journal.isCut);
  });
  await startTask().pass(async (ctx) => {
    await ctx.step("a", () => 1);
    abort(ctx);
    seen.push(ctx.journal.isCut);
    await ctx.step("b", () => 1).catch(() => undefined);
    seen.push(ctx.journal.isCut);
  });

  expect(seen).toEqual([true, false, true]);
});

test("a record that the mesh does not take fails the attempt, whatever the handler makes of it", async () => {
  const task = startTask();
  task.refused = new Error("out of reach");
  let fault: unknown;

  const answer = await task.pass(async (ctx) => {
    await ctx.step("a", () => 1).catch(() => undefined);
    fault = ctx.journal.fault;
    return "went on";
  });

  expect([answer, fault]).toEqual(["went on", task.refused]);
});

test("a sleep that a step holds up is asked for by what is left of it", async () => {
  const task = startTask();

  const pass = task.pass((ctx) => Promise.all([ctx.sleep("1h"), ctx.step("slow", () => delay(2_100))]));

  expect(await pass).toBe("suspended");
  expect(task.asked[0]![0]!.duration).toMatchObject({ seconds: 3_598n, nanos: 0 });
});

test("a sleep is over though a step beside it still runs", async () => {
  const task = startTask({ inProcessMs: 20 });

  const answer = await task.pass(async (ctx) => {
    const slow = ctx.step("slow", () => delay(400, "slow"));
    const first = await Promise.race([slow, ctx.sleep("50ms").then(() => "late")]);
    return [first, await slow];
  });

  expect(answer).toEqual(["late", "slow"]);
  expect(task.record.map((step) => [step.kind, step.done])).toEqual([
    [StepKind.SLEEP, 1],
    [StepKind.STEP, 2],
  ]);
});

test("what comes while a step runs is answered though the step goes on, also to who waits in it", async () => {
  const task = startTask();
  const answer = task.pass(async (ctx) => {
    const stop = ctx.waitForSignal("stop");
    const long = ctx.step("long", async () => [await stop]);
    return Promise.all([Promise.race([long.then(() => "long"), stop]), long]);
  });
  task.signals.set("stop", ['"now"']);

  expect(await answer).toEqual(["now", ["now"]]);
  expect(task.record.map((step) => [step.kind, step.done])).toEqual([
    [StepKind.SIGNAL, 1],
    [StepKind.STEP, 2],
  ]);
});

test("more waits than one request names are asked for in parts, signals and sleeps first", async () => {
  const task = startTask();

  const pass = await task.pass(async (ctx) => {
    const children = await Promise.all(Array.from({ length: 1_100 }, () => ctx.startRun("child")));
    const results = children.map((child) => child.result());
    await Promise.all([...results, ctx.waitForSignal("go"), ctx.sleep("1h")]);
  });

  expect(pass).toBe("suspended");
  expect(task.asked[0]!.slice(0, 3).map((wait) => wait.name)).toEqual(["go", "sleep", "child"]);
  expect(task.asked[0]).toHaveLength(1_000);
});

test("a start that the mesh has no room for holds up no other answer", async () => {
  const task = startTask();
  task.full = 2;

  const answer = await task.pass(async (ctx) => {
    const order: string[] = [];
    const child = ctx.startRun("child").then(() => order.push("child"));
    await ctx.step("a", () => 1);
    order.push("a");
    await child;
    return order;
  });

  expect(answer).toEqual(["a", "child"]);
  expect(task.started).toHaveLength(1);
});

test("starts of children that are called at once are recorded one after the other", async () => {
  const task = startTask();
  task.startMs = [30, 1, 10];
  const given: string[] = [];

  const pass = (isLast: boolean) =>
    task.pass(async (ctx) => {
      given.length = 0;
      await Promise.all(["a", "b", "c"].map((name) => ctx.startRun(name).then(() => given.push(name))));
      await ctx.step(given.join(""), () => 1);
      if (!isLast) throw new Error("again");
    });
  await expect(pass(false)).rejects.toThrow("again");
  const first = [...given];
  await pass(true);

  expect(first).toEqual(["a", "b", "c"]);
  expect(given).toEqual(first);
});
