import { defineTask } from "@runmesh/client";
import { expect, test } from "vitest";
import { z } from "zod";
import { runTask } from "./index.ts";

const charge = defineTask({
  name: "charge",
  input: z.object({ cents: z.number(), tries: z.number().default(3) }),
  output: z.object({ id: z.string(), at: z.any() }),
});

test("a handler runs with checked input and a fake context, and its output passes through JSON", async () => {
  const said: unknown[] = [];

  const output = await runTask(
    charge,
    ({ cents, tries }, { attempt, fence, log, progress }) => {
      log.warn("careful");
      progress(cents);
      return { id: `${cents}-${tries}-${attempt}-${fence}`, at: new Date(0) };
    },
    { cents: 5 },
    { attempt: 2, fence: 9n, onLog: (...line) => said.push(line), onProgress: (value) => said.push(value) },
  );

  expect(output).toEqual({ id: "5-3-2-9", at: "1970-01-01T00:00:00.000Z" });
  expect(said).toEqual([["warn", "careful"], 5]);
});

test("a handler that was made by `handle` runs too, and sees the signal", async () => {
  const aborted = AbortSignal.abort(new Error("enough"));
  const handler = charge.handle((_, { signal }) => {
    signal.throwIfAborted();
    return { id: "", at: null };
  });

  await expect(runTask(charge, handler, { cents: 1 }, { signal: aborted })).rejects.toThrow("enough");
});

test("wrong input and wrong output are refused with their path", async () => {
  const handler = charge.handle(() => ({ id: 1 }) as never);

  await expect(runTask(charge, handler, { cents: "x" } as never)).rejects.toThrow(/^input\.cents: /);
  await expect(runTask(charge, handler, { cents: 1 })).rejects.toThrow(/^output\.id: /);
});

test("a child that does not end times out where the handler asks for it, and says so where it does not", async () => {
  const handler = (timeout?: string) =>
    charge.handle(async (_, ctx) => {
      const child = await ctx.startRun("slow");
      const late = await child.result({ ...(timeout && { timeout }) }).catch((error: Error) => error);
      return { id: `${(late as Error).name}: ${(late as Error).message}`, at: null };
    });
  const run = (timeout?: string) => runTask(charge, handler(timeout), { cents: 1 }, { unending: ["slow"] });

  expect(await run("1h")).toMatchObject({ id: "ResultTimeoutError: run 2 had not ended after 1h" });
  expect(await run()).toMatchObject({ id: "Error: no run of slow ends, and the wait has no time-out" });
});
