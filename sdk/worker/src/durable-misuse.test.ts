/** What an author gets wrong is refused at once, is not tried again, and says what to do. */
import { expect, test } from "vitest";
import { startTask } from "../test/recorded-task.ts";
import type { Durable } from "./durable.ts";
import { readFailure } from "./failure.ts";

type Loose = { [K in "step" | "sleep" | "waitForSignal" | "startRun"]: (...args: unknown[]) => Promise<never> };

const misuses: [string, (ctx: Loose) => unknown, string][] = [
  ["a number for a duration", (ctx) => ctx.sleep(1_000), 'sleep: a duration is such as "1h30m"'],
  ["no duration", (ctx) => ctx.sleep(), "not undefined"],
  ["NaN for a duration", (ctx) => ctx.sleep(Number.NaN), "not NaN"],
  ["a negative duration", (ctx) => ctx.sleep("-5s"), 'not "-5s"'],
  ["a hundred years", (ctx) => ctx.sleep("36500d"), "at most 366d"],
  ["a number for a time-out", (ctx) => ctx.waitForSignal("a", { timeout: 5 }), "timeout: a duration is such as"],
  ["a step without a name", (ctx) => ctx.step(() => 1), "a step's name has 1 to 128 bytes"],
  ["a step without a function", (ctx) => ctx.step("a"), "step a takes a function, not undefined"],
  ["a signal without a name", (ctx) => ctx.waitForSignal(), "a signal's name has 1 to 128 characters"],
  ["a start of nothing", (ctx) => ctx.startRun(), "startRun takes a workflow or the name of one, not undefined"],
  ["a time that is none", (ctx) => ctx.startRun("a", 1, { dueTime: new Date("x") }), "dueTime is a Date after 1970"],
];

for (const [what, use, message] of misuses) {
  test(`${what} is refused, and not tried again`, async () => {
    const failure = readFailure(
      await startTask()
        .pass(async (ctx) => use(ctx as unknown as Loose))
        .catch((error) => error),
    );

    expect(failure).toMatchObject({ type: "INVALID_FIELD", retryable: false });
    expect(failure.message).toContain(message);
  });
}

test("a call inside a step's function is refused: it could neither be found on the next pass nor suspend", async () => {
  const calls: Record<string, (ctx: Durable) => Promise<unknown>> = {
    'step "inner"': (ctx) => ctx.step("inner", () => 1),
    'sleep "sleep"': (ctx) => ctx.sleep("1h"),
    'signal "go"': (ctx) => ctx.waitForSignal("go"),
    'start of "child"': (ctx) => ctx.startRun("child"),
  };
  for (const [what, call] of Object.entries(calls)) {
    const pass = startTask().pass((ctx) => ctx.step("outer", () => call(ctx)));

    await expect(pass).rejects.toMatchObject({
      name: "NESTED_CALL",
      message: `${what} is called inside step "outer", which is recorded as one: call it before or after the step`,
      retryable: false,
    });
  }
});

test("what a step's function left running may call when the step is over", async () => {
  const answer = await startTask().pass(async (ctx) => {
    let later = Promise.resolve<unknown>(undefined);
    const over = Promise.withResolvers<void>();
    await ctx.step("outer", () => {
      later = over.promise.then(() => ctx.step("after", () => 2));
    });
    over.resolve();
    return later;
  });

  expect(answer).toBe(2);
});

test("the 10,001st call of a task is refused before it does anything", async () => {
  const task = startTask();
  let hasRun = false;

  const pass = task.pass(async (ctx) => {
    for (let call = 0; call < 10_000; call++) void ctx.waitForSignal("go");
    await ctx.step("one more", () => {
      hasRun = true;
    });
  });

  await expect(pass).rejects.toMatchObject({
    name: "TOO_LARGE",
    message: "a task records at most 10000 calls: do more in each step, or give parts of the work to child runs",
  });
  expect(hasRun).toBe(false);
});

test("a signal that carries nothing is null, and not what a time-out answers", async () => {
  const task = startTask();
  task.signals.set("go", [""]);

  expect(await task.pass((ctx) => ctx.waitForSignal("go", { timeout: "1h" }))).toBe(null);
});
