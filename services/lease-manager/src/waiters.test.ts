import { createWakeups } from "@runmesh/platform/wakeup";
import { expect, onTestFinished, test, vi } from "vitest";
import { Waiters } from "./waiters.ts";

const WITHIN_MS = 60_000;

function setUp() {
  const wakeups = createWakeups();
  return { wakeups, waiters: new Waiters(wakeups) };
}

test("a route found dry stays so for the next who waits, as long as someone does", () => {
  const { waiters } = setUp();
  const first = waiters.arm([7]);

  first.foundDry();

  const second = waiters.arm([7]);
  expect(second.isDry(WITHIN_MS)).toBe(true);
  expect(waiters.arm([7, 8]).isDry(WITHIN_MS)).toBe(false);
});

test("a dry route is looked at again after the time given", () => {
  const { waiters } = setUp();
  const armed = waiters.arm([7]);

  armed.foundDry();

  expect(armed.isDry(0)).toBe(false);
});

test("a hint ends that a route is dry", () => {
  const { wakeups, waiters } = setUp();
  const armed = waiters.arm([7]);
  armed.foundDry();

  wakeups.notify("ready:7");

  expect(waiters.arm([7]).isDry(WITHIN_MS)).toBe(false);
});

test("a claim that began before a hint cannot call the route dry after it", () => {
  const { wakeups, waiters } = setUp();
  const parked = waiters.arm([7]);
  const claiming = waiters.arm([7]);

  wakeups.notify("ready:7");
  claiming.foundDry();

  expect(parked.isDry(WITHIN_MS)).toBe(false);
});

test("a dry route is remembered for the next acquire of a worker, and hints are heard meanwhile", () => {
  const { wakeups, waiters } = setUp();
  const armed = waiters.arm([7, 8]);
  armed.foundDry();

  armed.disarm();
  wakeups.notify("ready:8");

  expect(waiters.arm([7]).isDry(WITHIN_MS)).toBe(true);
  expect(waiters.arm([8]).isDry(WITHIN_MS)).toBe(false);
});

test("nothing is known of a route that nobody waited for in the last second", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { waiters } = setUp();
  const armed = waiters.arm([7]);
  armed.foundDry();

  armed.disarm();
  vi.advanceTimersByTime(2_500);

  expect(waiters.arm([7]).isDry(WITHIN_MS)).toBe(false);
});

test("a hint wakes one of those who wait, and the next hint the next", async () => {
  const { wakeups, waiters } = setUp();
  const { signal } = new AbortController();
  const woken: string[] = [];
  const first = waiters
    .arm([7])
    .wait(WITHIN_MS, signal)
    .then(() => woken.push("first"));
  const second = waiters
    .arm([7])
    .wait(WITHIN_MS, signal)
    .then(() => woken.push("second"));

  wakeups.notify("ready:7");
  await first;
  expect(woken).toEqual(["first"]);

  wakeups.notify("ready:7");
  await second;
  expect(woken).toEqual(["first", "second"]);
});
