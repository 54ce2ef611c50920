/** Handlers that leave things behind, fail in the middle, or are cut off: on a whole mesh. */
import { setTimeout as delay } from "node:timers/promises";
import { defineTask, defineWorkflow } from "@runmesh/client";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { child, childTask, outcomes, start, suspended, task, workflow } from "./durable-mesh.ts";

const largeTask = defineTask({ name: "large", input: z.any(), output: z.string() });

test("a handler that returns while something is waited for has ended: its task is not suspended", async () => {
  await using t = await start();
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 2 });
    return Promise.race([run.result(), ctx.sleep("1h"), ctx.waitForSignal("never")]);
  });
  await t.work(() => {}, { handlers: [parent, childTask.handle(({ n }) => ({ twice: 2 * n }))] });

  const runs = await Promise.all(Array.from({ length: 20 }, () => t.client.start(workflow, null)));

  expect(await Promise.all(runs.map((run) => run.result()))).toEqual(runs.map(() => ({ doubled: 4 })));
});

test("calls that a handler began and does not await do not end the worker when the run is cancelled", async () => {
  await using t = await start();
  const unhandled: unknown[] = [];
  const listen = (error: unknown) => unhandled.push(error);
  process.on("unhandledRejection", listen);
  onTestFinished(() => void process.off("unhandledRejection", listen));
  let began = () => {};
  const hasBegun = new Promise<void>((resolve) => {
    began = resolve;
  });
  await t.work(async (input, ctx) => {
    if (input === "other") return "alive";
    const steps = ["a", "b"].map((name) => ctx.step(name, () => new Promise(() => began())));
    await steps[0];
    await steps[1];
  });
  const run = await t.client.start(workflow, null);
  await hasBegun;
  await run.cancel();
  while ((await outcomes(t, run)).length === 0) await delay(20);

  expect(await (await t.client.start(workflow, "other")).result()).toBe("alive");
  expect(unhandled).toEqual([]);
});

test("a failure that a handler lives on from goes the same way after a wait, and the step does not run again", async () => {
  await using t = await start();
  let paid = 0;
  await t.work(async (_, ctx) => {
    try {
      await ctx.step("pay", () => {
        if (++paid === 1) throw new TypeError("no route");
      });
    } catch (error) {
      await ctx.waitForSignal("human");
      return (error as Error).name;
    }
    return ctx.step("ship", () => "shipped");
  });
  const run = await t.client.start(workflow, null);
  await suspended(t);
  await run.signal("human");

  expect([await run.result(), paid]).toEqual(["TypeError", 1]);
});

test("what a handler did after a failure that ended it stands not in the way of the next attempt", async () => {
  await using t = await start();
  const ran: string[] = [];
  let isBroken = true;
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 1 });
    try {
      await run.result();
    } catch (error) {
      await ctx.step("note", () => ran.push("note"));
      ran.push((await ctx.waitForSignal("why")) as string);
      throw error;
    }
    const why = await ctx.waitForSignal("why");
    return [why, await ctx.step("note", () => ran.push("again"))];
  });
  const childHandler = childTask.handle(({ n }) => {
    if (!isBroken) return { twice: 2 * n };
    isBroken = false;
    throw new Error("torn");
  });
  await t.work(() => {}, { handlers: [parent, childHandler] });
  const run = await t.client.start(workflow, null);
  await run.signal("why", "because");

  expect(await run.result()).toEqual(["because", 1]);
  expect(ran).toEqual(["note", "because"]);
});

test("children that succeeded after one that failed keep their result when the failure is thrown at the end", async () => {
  await using t = await start();
  const notes: number[] = [];
  let isBroken = true;
  const parent = task.handle(async (_, ctx) => {
    const failures: unknown[] = [];
    const results: unknown[] = [];
    for (let n = 0; n < 4; n++) {
      const run = await ctx.startRun(child, { n });
      const result = await run.result().catch((error: unknown) => void failures.push(error));
      results.push(result);
      if (result === undefined) await ctx.step("note", () => notes.push(n));
      await ctx.sleep("1ms");
    }
    if (failures.length > 0) throw new AggregateError(failures, "some failed");
    return results;
  });
  const childHandler = childTask.handle(({ n }) => {
    if (n !== 1 || !isBroken) return { twice: 2 * n };
    isBroken = false;
    throw new Error("torn");
  });
  await t.work(() => {}, { handlers: [parent, childHandler] });

  const run = await t.client.start(workflow, null);

  expect(await run.result()).toEqual([0, 2, 4, 6].map((doubled) => ({ doubled })));
  expect(notes).toEqual([1]);
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  expect(runs).toHaveLength(5);
});

test("a retry waits for the child that it started, and not for the one that was cancelled before", async () => {
  await using t = await start();
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 1 });
    return [run.id, await run.result()];
  });
  await t.work(() => {}, { handlers: [parent] });
  const run = await t.client.start(workflow, null);
  await suspended(t);
  const before = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  await run.cancel();
  await t.mesh.ended(before.runs[0]!.id);
  await t.client.runs.retryRun({ runId: BigInt(run.id) });
  await suspended(t);
  await t.work(() => {}, { handlers: [childTask.handle(({ n }) => ({ twice: 2 * n }))] });

  const [childId, result] = (await run.result()) as [string, unknown];

  expect(childId).not.toBe(String(before.runs[0]!.id));
  expect(result).toEqual({ doubled: 2 });
  expect(await outcomes(t, run)).not.toContain(2);
});

test("a handler that swallows the abort of a step at a stop has not succeeded: it runs again", async () => {
  await using t = await start();
  let passes = 0;
  const run = await t.client.start(workflow, null);
  {
    let began = () => {};
    const hasBegun = new Promise<void>((resolve) => {
      began = resolve;
    });
    await using _ = await t.work(
      async (_, ctx) => {
        passes++;
        await ctx.step("charge", () => new Promise(() => began())).catch(() => undefined);
        return "done";
      },
      { gracefulStopMs: 50 },
    );
    await hasBegun;
  }
  await t.work((_, ctx) => ctx.step("charge", () => "charged"));

  expect([await run.result(), passes]).toEqual(["charged", 1]);
  expect(await outcomes(t, run)).toEqual([6, 1]);
});

test("a context that a handler kept runs no step after its end", async () => {
  await using t = await start();
  let late: Promise<unknown> = Promise.resolve();
  let ran = false;
  await t.work((_, ctx) => {
    late = new Promise((resolve) => setTimeout(resolve, 100)).then(() =>
      ctx.step("late", () => {
        ran = true;
      }),
    );
    return "done";
  });
  const run = await t.client.start(workflow, null);
  await run.result();

  await expect(late).rejects.toThrow("the handler has ended");
  expect(ran).toBe(false);
});

test("a child that succeeded with more than its parent can take is not started anew", async () => {
  await using t = await start();
  const large = defineWorkflow({
    name: "large",
    input: z.any(),
    build: (w) => ["a", "b"].map((key) => w.task(key, largeTask, w.input).output),
  });
  const parent = task.handle(async (_, ctx) => (await ctx.startRun(large, null)).result());
  await t.work(() => {}, { handlers: [parent, largeTask.handle(() => "x".repeat(200_000))] });

  const run = await t.client.start(workflow, null);

  await expect(run.result()).rejects.toMatchObject({
    errorType: "TOO_LARGE",
    message: expect.stringContaining("is 400007 bytes; a parent takes at most 262144"),
  });
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  expect(runs).toHaveLength(1);
});
