import { createWakeups } from "@runmesh/platform/wakeup";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { expect, onTestFinished, test, vi } from "vitest";
import { StartedRuns } from "./started-runs.ts";

const LOADED = { name: "loaded" } as unknown as LoadedDefinition;

function setUp() {
  const wakeups = createWakeups();
  return { wakeups, started: new StartedRuns(wakeups) };
}

test("of a run started a moment ago it is known what it runs, and whether it has ended", () => {
  const { wakeups, started } = setUp();
  started.note(1, 7n, LOADED);
  started.note(1, 8n, LOADED);

  wakeups.notify("ended:8");

  expect(started.find(1, 7n)).toMatchObject({ loaded: LOADED, hasEnded: false });
  expect(started.find(1, 8n)).toMatchObject({ loaded: LOADED, hasEnded: true });
});

test("another tenant finds nothing of it", () => {
  const { started } = setUp();
  started.note(1, 7n, LOADED);

  expect(started.find(2, 7n)).toBeUndefined();
});

test("runs are forgotten after a while, and the oldest before there are too many", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { started } = setUp();
  for (let id = 1n; id <= 10_001n; id++) started.note(1, id, LOADED);
  const kept = [started.find(1, 1n), started.find(1, 2n)];

  vi.advanceTimersByTime(5_000);

  expect(kept).toEqual([undefined, expect.objectContaining({ hasEnded: false })]);
  expect(started.find(1, 10_001n)).toBeUndefined();
});
