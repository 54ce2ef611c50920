/** Handlers that record steps, wait and start runs, written with the SDK, on a whole mesh. */
import { setTimeout as delay } from "node:timers/promises";
import { ResultTimeoutError, RunFailedError } from "@runmesh/client";
import { expect, test } from "vitest";
import { z } from "zod";
import {
  child,
  childTask,
  outcomes,
  passTime,
  type Run,
  start,
  suspended,
  task,
  waitsForChild,
  workflow,
} from "./durable-mesh.ts";

test("a handler that sleeps for days is gone meanwhile, and goes on from its record on another worker", async () => {
  await using t = await start();
  const ran: string[] = [];
  const handler: Run = async (_, ctx) => {
    const before = await ctx.step("before", () => ran.push("before"));
    await ctx.sleep("3d");
    const after = await ctx.step("after", () => ran.push("after"));
    return [before, after, ctx.attempt];
  };
  {
    await using _ = await t.work(handler);
    await t.client.start(workflow, null, { idempotencyKey: "k" });
    await suspended(t);
  }
  await passTime(t);
  await t.work(handler);

  const run = await t.client.start(workflow, null, { idempotencyKey: "k" });

  expect(await run.result()).toEqual([1, 2, 2]);
  expect(ran).toEqual(["before", "after"]);
  expect(await outcomes(t, run)).toEqual([7, 1]);
});

test("a suspended handler's slot is free, and its signal aborts with the reason `suspended`", async () => {
  await using t = await start();
  const reasons: unknown[] = [];
  await t.work(
    async (input: number, ctx) => {
      ctx.signal.addEventListener("abort", () => reasons.push((ctx.signal.reason as Error).cause));
      if (input === 1) return (await ctx.waitForSignal("go")) as string;
      return input;
    },
    { slots: 1 },
  );
  const waiting = await t.client.start(workflow, 1);
  await suspended(t);

  const other = await t.client.start(workflow, 2);
  const answer = await other.result();
  await waiting.signal("go", "on");

  expect(answer).toBe(2);
  expect(await waiting.result()).toBe("on");
  expect(reasons).toEqual(["suspended"]);
});

test("a signal before the wait, its schema, its time-out, and two waits on one name", async () => {
  await using t = await start();
  await t.work(async (_, ctx) => {
    const early = await ctx.waitForSignal("early", { schema: z.object({ n: z.number().default(7) }) });
    const both = await Promise.all([ctx.waitForSignal("twice"), ctx.waitForSignal("twice")]);
    const none = await ctx.waitForSignal("never", { timeout: "20s" });
    const wrong = await ctx.waitForSignal("wrong", { schema: z.string() }).catch((error: Error) => error.name);
    return { early, both, none: none === undefined, wrong };
  });
  const run = await t.client.start(workflow, null);
  await run.signal("early", {});
  await run.signal("wrong", 1);
  await suspended(t);
  await run.signal("twice", 1);
  await run.signal("twice", 2);
  for (let timedOut = false; !timedOut; await delay(20)) {
    const rows = await t.mesh.db.rows("", "SELECT 1 FROM suspended WHERE wake_at IS NOT NULL", []);
    timedOut = rows.length > 0;
  }
  await passTime(t);

  expect(await run.result()).toEqual({ early: { n: 7 }, both: [1, 2], none: true, wrong: "INVALID_FIELD" });
});

test("R-1 a changed order of steps fails NON_DETERMINISTIC, and is not tried again", async () => {
  await using t = await start();
  let isChanged = false;
  await t.work(async (_, ctx) => {
    for (const name of isChanged ? ["b", "a"] : ["a", "b"]) await ctx.step(name, () => name);
    isChanged = true;
    return ctx.waitForSignal("go");
  });
  const run = await t.client.start(workflow, null);
  await suspended(t);
  await run.signal("go");

  const failure = run.result();

  await expect(failure).rejects.toMatchObject({ errorType: "NON_DETERMINISTIC" });
  expect(await outcomes(t, run)).toEqual([7, 2]);
});

test("an attempt that fails between steps keeps what it recorded, and a retry of the run does too unless fresh", async () => {
  await using t = await start();
  const ran: string[] = [];
  let isBroken = true;
  await t.work(async (_, ctx) => {
    await ctx.step("a", () => ran.push("a"));
    if (isBroken) throw new Error("broken");
    await ctx.step("b", () => ran.push("b"));
    return ran.length;
  });
  const run = await t.client.start(workflow, null);
  await expect(run.result()).rejects.toThrow("broken");
  const runId = BigInt(run.id);
  isBroken = false;
  await t.client.runs.retryRun({ runId });

  const kept = await run.result();
  isBroken = true;
  const other = await t.client.start(workflow, null);
  await expect(other.result()).rejects.toThrow("broken");
  isBroken = false;
  await t.client.runs.retryRun({ runId: BigInt(other.id), fresh: true });
  await other.result();

  expect(kept).toBe(2);
  expect(ran).toEqual(["a", "b", "a", "a", "b"]);
});

test("a parent with 100 children over one worker with 2 slots finishes", async () => {
  await using t = await start();
  const parent = task.handle(async (count: number, ctx) => {
    const children = await Promise.all(Array.from({ length: count }, (_, n) => ctx.startRun(child, { n })));
    const results = await Promise.all(children.map((run) => run.result()));
    return results.reduce((sum, { doubled }) => sum + doubled, 0);
  });
  await t.work(() => {}, { slots: 2, handlers: [parent, childTask.handle(({ n }) => ({ twice: 2 * n }))] });
  const startedAt = performance.now();

  const run = await t.client.start(workflow, 100);

  expect(await run.result()).toBe(9_900);
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) }, pageSize: 1_000 });
  expect(runs).toHaveLength(100);
  const passes = (await outcomes(t, run)).length;
  console.info(
    `100 children took ${Math.round(performance.now() - startedAt)} ms and ${passes} passes of their parent`,
  );
});

test("a child that failed fails its parent's attempt, and the next attempt starts another", async () => {
  await using t = await start();
  const childRuns: string[] = [];
  let isBroken = true;
  const parent = task.handle(async (_, ctx) => {
    const kept = await ctx.startRun(child, { n: 1 });
    const run = await ctx.startRun(child, { n: 2 });
    childRuns.push(run.id);
    return [await kept.result(), await run.result()];
  });
  await t.work(() => {}, {
    handlers: [
      parent,
      childTask.handle(({ n }) => {
        if (n === 2 && isBroken) {
          isBroken = false;
          throw new Error("torn");
        }
        return { twice: 2 * n };
      }),
    ],
  });

  const run = await t.client.start(workflow, null);

  expect(await run.result()).toEqual([{ doubled: 2 }, { doubled: 4 }]);
  expect(new Set(childRuns).size).toBe(2);
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  expect(runs).toHaveLength(3);
  expect((await outcomes(t, run)).filter((outcome) => outcome === 2)).toHaveLength(1);
});

test("a caught failure of a child is the same on each pass, and names what failed", async () => {
  await using t = await start();
  const seen: unknown[] = [];
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 1 });
    const error = await run.result().catch((caught: unknown) => caught);
    seen.push(error);
    await ctx.waitForSignal("go");
    return error instanceof RunFailedError && [error.state, error.taskKey, error.errorType];
  });
  await t.work(() => {}, { handlers: [parent, childTask.handle(() => Promise.reject(new TypeError("torn")))] });
  const run = await t.client.start(workflow, null);
  while (seen.length === 0) await delay(20);
  await suspended(t);
  await run.signal("go");

  expect(await run.result()).toEqual(["FAILED", "child", "TypeError"]);
  expect((await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } })).runs).toHaveLength(1);
});

test("a child that is not there in time times its parent's wait out, on each pass, and is waited for again", async () => {
  await using t = await start();
  const seen: unknown[] = [];
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 4 });
    const late = await run.result({ timeout: "1h" }).catch((caught: unknown) => caught);
    seen.push(late instanceof ResultTimeoutError && late.runId === run.id && late.message);
    await ctx.waitForSignal("go");
    return run.result();
  });
  await t.work(() => {}, { handlers: [parent] });
  const run = await t.client.start(workflow, null);
  await suspended(t);
  await passTime(t);
  while (seen.length === 0) await delay(20);
  await suspended(t);
  await run.signal("go");
  await waitsForChild(t);
  await t.work(() => {}, { handlers: [childTask.handle(({ n }) => ({ twice: 2 * n }))] });

  expect(await run.result()).toEqual({ doubled: 8 });
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  expect(runs).toHaveLength(1);
  const late = `run ${runs[0]!.id} had not ended after 1h`;
  expect(seen).toEqual([late, late, late]);
});

test("a time-out that ends the attempt is waited for anew by the next, on the same child", async () => {
  await using t = await start();
  const parent = task.handle(async (_, ctx) => {
    const run = await ctx.startRun(child, { n: 4 });
    return [run.id, await run.result({ timeout: "1h" })];
  });
  await t.work(() => {}, { handlers: [parent] });
  const run = await t.client.start(workflow, null);
  await suspended(t);
  await passTime(t);
  while (!(await outcomes(t, run)).includes(2)) await delay(20);
  await suspended(t);
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  await t.work(() => {}, { handlers: [childTask.handle(({ n }) => ({ twice: 2 * n }))] });

  expect(await run.result()).toEqual([String(runs[0]!.id), { doubled: 8 }]);
  expect(runs).toHaveLength(1);
});

test("cancelling a parent cancels its children and theirs, unless detached", async () => {
  await using t = await start();
  const parent = task.handle(async (depth: number, ctx) => {
    const below = await ctx.startRun(depth > 0 ? workflow : child, (depth > 0 ? depth - 1 : { n: 1 }) as never);
    await ctx.startRun(child, { n: 2 }, { detached: true, labels: { kind: "detached" } });
    return below.result();
  });
  await t.work(() => {}, { handlers: [parent] });
  const run = await t.client.start(workflow, 2);
  await suspended(t, 3);

  const cancelledAt = performance.now();
  await run.cancel();
  for (let open = 1; open > 3 || open === 1; ) {
    const { runs } = await t.client.runs.listRuns({ filter: { states: [2] } });
    open = runs.length;
    if (performance.now() - cancelledAt > 10_000) break;
  }
  const took = performance.now() - cancelledAt;
  const { runs } = await t.client.runs.listRuns({ filter: { states: [2] } });

  expect(runs.map((open) => open.labels)).toEqual([1, 2, 3].map(() => ({ kind: "detached" })));
  expect(took).toBeLessThan(3_000);
  for (const open of runs) await t.client.run(String(open.id)).cancel();
});

test("a child's workflow is registered by its first start, and one that is unknown by name is NOT_FOUND", async () => {
  await using t = await start();
  await t.work(async (_, ctx) => {
    const byDefinition = await ctx.startRun(child, { n: 1 }).then(() => "started");
    const unknown = await ctx.startRun("unknown").catch((error: Error) => (error as { reason?: string }).reason);
    return [byDefinition, unknown];
  });

  const run = await t.client.start(workflow, null);

  expect(await run.result()).toEqual(["started", "NOT_FOUND"]);
  const { runs } = await t.client.runs.listRuns({ filter: { parentRunId: BigInt(run.id) } });
  for (const open of runs) await t.client.run(String(open.id)).cancel();
});
