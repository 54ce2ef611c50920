import { expect, test } from "vitest";
import { createWakeups, waitForWakeup } from "./wakeup.ts";

const never = new AbortController().signal;

test("a hint reaches the listeners of its topic until they unsubscribe", () => {
  const wakeups = createWakeups();
  const told: string[] = [];
  const end = wakeups.subscribe("run:1", () => told.push("first"));
  wakeups.subscribe("run:1", () => told.push("second"));
  wakeups.subscribe("run:2", () => told.push("other"));

  wakeups.notify("run:1");
  end();
  end();
  wakeups.notify("run:1");
  wakeups.notify("nobody");

  expect(told).toEqual(["first", "second", "second"]);
});

test("a listener that throws stops neither the writer nor the others", () => {
  const wakeups = createWakeups();
  const told: string[] = [];
  wakeups.subscribe("t", () => {
    throw new Error("broken");
  });
  wakeups.subscribe("t", () => told.push("told"));

  wakeups.notify("t");

  expect(told).toEqual(["told"]);
});

test("subscriptions over the bound are not held", () => {
  const wakeups = createWakeups({ maxSubscriptions: 1 });
  const told: string[] = [];
  const end = wakeups.subscribe("t", () => told.push("held"));
  wakeups.subscribe("t", () => told.push("over"))();
  wakeups.notify("t");

  end();
  wakeups.subscribe("t", () => told.push("next"));
  wakeups.notify("t");

  expect(told).toEqual(["held", "next"]);
});

test("a wait ends with a hint, its timeout or its signal, and leaves nothing subscribed", async () => {
  const wakeups = createWakeups({ maxSubscriptions: 2 });
  const abort = new AbortController();

  const woken = waitForWakeup(wakeups, ["a", "b"], 60_000, never);
  wakeups.notify("b");
  expect(await woken).toBe("woken");
  expect(await waitForWakeup(wakeups, ["a", "b"], 1, never)).toBe("timeout");
  const aborted = waitForWakeup(wakeups, ["a", "b"], 60_000, abort.signal);
  abort.abort();
  expect(await aborted).toBe("aborted");
  expect(await waitForWakeup(wakeups, ["a"], 60_000, abort.signal)).toBe("aborted");

  const again = waitForWakeup(wakeups, ["a", "b"], 60_000, never);
  wakeups.notify("a");
  expect(await again).toBe("woken");
});
