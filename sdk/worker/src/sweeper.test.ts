import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { createSweeper } from "./sweeper.ts";

test("an event loop that was blocked for longer than a second is noticed, and one that was not is not", async () => {
  const sweeper = createSweeper({ held: new Set(), trustedUntil: () => 0, tell: () => {}, onSwept: () => {} });
  sweeper.start();
  const before = sweeper.hasStalled;

  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_100);
  const inBlockedTurn = sweeper.hasStalled;
  await delay(1);
  const inNextTurn = sweeper.hasStalled;
  sweeper.stop();

  expect([before, inBlockedTurn, inNextTurn]).toEqual([false, true, true]);
});
