import { createWakeups } from "@runmesh/platform/wakeup";
import { expect, onTestFinished, test, vi } from "vitest";
import { type AcquireDeps, acquire } from "./acquire.ts";
import { ClaimTurns } from "./claim-turns.ts";
import type { Session } from "./sessions.ts";
import { Waiters } from "./waiters.ts";

const ROUTE = 7;
const OTHER_ROUTE = 8;
const PRESENT = new AbortController().signal;
const NOTHING = { task_ids: null, candidates: 0 };

/** Acquires of one worker's routes; `claims` are the statements that have begun, each ended by the test. */
function setUp() {
  const wakeups = createWakeups();
  const claims: { end: () => void }[] = [];
  const one = () => new Promise((resolve) => claims.push({ end: () => resolve(NOTHING) }));
  const deps = {
    hot: { one },
    routes: {},
    waiters: new Waiters(wakeups),
    turns: new ClaimTurns(),
  } as unknown as AcquireDeps;
  const start = (waitMs: number, { routeIds = [ROUTE], signal = PRESENT } = {}) => {
    const session = { tenantId: 1, id: 1n, leaseMs: 1_000, routeIds: async () => routeIds } as unknown as Session;
    return acquire(deps, { session, max: 1, waitMs, acquireId: undefined, signal });
  };
  return { claims, start, hint: () => wakeups.notify(`ready:${ROUTE}`) };
}

/** Everything that can go on has gone on. */
const settled = () => vi.advanceTimersByTimeAsync(0);

function useFakeTime(): void {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
}

test("a hint that wakes an acquire whose caller has gone away meanwhile wakes the next", async () => {
  useFakeTime();
  const { claims, start, hint } = setUp();
  const gone = new AbortController();
  const first = start(10_000, { signal: gone.signal });
  const second = start(10_000);
  await settled();
  claims[0]!.end();
  await settled();
  expect(claims).toHaveLength(1);

  hint();
  gone.abort();
  await settled();

  expect(await first).toEqual([]);
  expect(claims).toHaveLength(2);
  claims[1]!.end();
  await vi.advanceTimersByTimeAsync(10_000);
  for (const { end } of claims) end();
  expect(await second).toEqual([]);
});

test("a hint that comes while the last claim of an acquire runs wakes the next", async () => {
  useFakeTime();
  const { claims, start, hint } = setUp();
  const last = start(0);
  await settled();
  const parked = start(10_000, { routeIds: [ROUTE, OTHER_ROUTE] });
  await settled();
  claims[1]!.end();
  await settled();
  expect(claims).toHaveLength(2);

  hint();
  await settled();
  claims[0]!.end();
  await settled();

  expect(await last).toEqual([]);
  expect(claims).toHaveLength(3);
  for (let i = 0; i < 11; i++) {
    for (const { end } of claims) end();
    await vi.advanceTimersByTimeAsync(1_000);
  }
  expect(await parked).toEqual([]);
});

test("two hundred acquires behind a database that has gone silent are answered in time, and the next served after it", async () => {
  useFakeTime();
  const { claims, start } = setUp();
  const silent = start(5_000);
  await settled();
  const answered: number[] = [];
  const startedAt = performance.now();
  const behind = Array.from({ length: 200 }, () =>
    start(500).then((tasks) => {
      answered.push(Math.round(performance.now() - startedAt));
      return tasks;
    }),
  );
  await vi.advanceTimersByTimeAsync(1_000);

  // Who had a turn when the second was over waits for the database; nobody else does.
  expect(answered.length).toBeGreaterThanOrEqual(199);
  expect(Math.max(...answered)).toBeLessThanOrEqual(1_000);
  for (const { end } of claims) end();
  const next = start(0);
  await settled();
  for (const { end } of claims) end();
  expect(await next).toEqual([]);
  expect((await Promise.all(behind)).flat()).toEqual([]);
  for (let i = 0; i < 6; i++) {
    await vi.advanceTimersByTimeAsync(1_000);
    for (const { end } of claims) end();
  }
  expect(await silent).toEqual([]);
});
