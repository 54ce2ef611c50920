import { expect, test } from "vitest";
import { silentLog } from "./log.ts";
import { createLoop } from "./loop.ts";
import { createWakeups, wakeOn } from "./wakeup.ts";

/** Counts passes and lets a test wait for the one it needs. */
function passes() {
  let count = 0;
  const waiting: { at: number; resolve: () => void }[] = [];
  return {
    get count() {
      return count;
    },
    next() {
      count++;
      for (const one of waiting) if (count >= one.at) one.resolve();
    },
    reached: (at: number) =>
      count >= at ? Promise.resolve() : new Promise<void>((resolve) => waiting.push({ at, resolve })),
  };
}

test("a loop runs at its start, goes on at once while there is more, and then rests", async () => {
  const made = passes();
  const loop = createLoop({
    name: "l",
    intervalMs: 60_000,
    log: silentLog,
    runOnce: async () => {
      made.next();
      return { again: made.count < 3 };
    },
  });

  await loop.start();
  await made.reached(3);
  await loop.stop();

  expect(made.count).toBe(3);
});

test("a wake ends the rest, whether it comes by the loop, by a topic or during a pass", async () => {
  const made = passes();
  const wakeups = createWakeups();
  const loop = createLoop({
    name: "l",
    intervalMs: 60_000,
    log: silentLog,
    wake: wakeOn(wakeups, "outbox"),
    runOnce: async () => {
      made.next();
      if (made.count === 3) loop.wake();
    },
  });

  await loop.start();
  await made.reached(1);
  loop.wake();
  await made.reached(2);
  wakeups.notify("outbox");
  await made.reached(4);
  await loop.stop();

  expect(made.count).toBe(4);
});

test("a pass that fails is logged and repeated after a rest, and so is that passes succeed again", async () => {
  const made = passes();
  const logged: unknown[] = [];
  const loop = createLoop({
    name: "l",
    intervalMs: 60_000,
    log: { ...silentLog, error: (fields) => logged.push(fields), info: (...said) => logged.push(said) },
    runOnce: async () => {
      made.next();
      if (made.count < 3) throw new Error(`pass ${made.count}`);
    },
  });
  const startedAt = performance.now();

  await loop.start();
  await made.reached(3);
  await loop.stop();

  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(200);
  expect(logged).toEqual([
    { loop: "l", error: expect.objectContaining({ message: "pass 1" }), failureCount: 1, unloggedCount: 0 },
    [{ loop: "l", failureCount: 2 }, "passes succeed again"],
  ]);
});

test("passes that go on failing alike are logged once, and another failure is logged anew", async () => {
  const made = passes();
  const logged: unknown[] = [];
  const loop = createLoop({
    name: "l",
    intervalMs: 60_000,
    log: { ...silentLog, error: (fields) => logged.push(fields) },
    runOnce: async () => {
      made.next();
      throw new Error(made.count < 5 ? "away" : "broken");
    },
  });

  await loop.start();
  await made.reached(6);
  await loop.stop();

  expect(logged).toEqual([
    { loop: "l", error: expect.objectContaining({ message: "away" }), failureCount: 1, unloggedCount: 0 },
    { loop: "l", error: expect.objectContaining({ message: "broken" }), failureCount: 5, unloggedCount: 3 },
  ]);
});

test("stop aborts the pass, waits for it, and a stopped loop starts again without overlapping", async () => {
  const made = passes();
  let active = 0;
  let mostActive = 0;
  const loop = createLoop({
    name: "l",
    intervalMs: 60_000,
    log: silentLog,
    runOnce: async (signal) => {
      mostActive = Math.max(mostActive, ++active);
      made.next();
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => setImmediate(resolve)));
      active--;
    },
  });

  for (let round = 1; round <= 20; round++) {
    await Promise.all([loop.start(), loop.start()]);
    await made.reached(round);
    await Promise.all([loop.stop(), loop.stop()]);
    expect(active).toBe(0);
  }

  expect(made.count).toBe(20);
  expect(mostActive).toBe(1);
});

test("a pass that ignores its signal is left behind after the stop timeout", async () => {
  const warned: unknown[] = [];
  let release = () => {};
  const loop = createLoop({
    name: "l",
    intervalMs: 1,
    stopTimeoutMs: 5,
    log: { ...silentLog, warn: (fields) => warned.push(fields) },
    runOnce: () =>
      new Promise<void>((resolve) => {
        release = resolve;
      }),
  });

  await loop.start();
  await new Promise((resolve) => setImmediate(resolve));
  await loop.stop();
  release();

  expect(warned).toEqual([{ loop: "l", stopTimeoutMs: 5 }]);
});
