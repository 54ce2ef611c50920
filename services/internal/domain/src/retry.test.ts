import fc from "fast-check";
import { expect, test } from "vitest";
import type { RetryPolicy } from "./definition.ts";
import { MAX_DURATION_MS } from "./duration.ts";
import { decideFailure, type FailedAttempt, MESH_ERROR_TYPES, retryDelayMs } from "./retry.ts";

const policy: RetryPolicy = {
  maxAttempts: 3,
  maxLost: 2,
  initialMs: 1000,
  multiplier: 2,
  maxMs: 60_000,
  jitter: 0,
  nonRetryable: ["CardDeclined"],
};
const middle = () => 0.5;

const decide = (attempt: Partial<FailedAttempt>) =>
  decideFailure({
    policy,
    failures: 1,
    losses: 0,
    outcome: "FAILED",
    errorType: "Error",
    retryable: true,
    retryAfterMs: 0,
    random: middle,
    ...attempt,
  });

test("delays grow by the multiplier up to the limit", () => {
  expect([1, 2, 3, 6, 7, 10_000].map((n) => retryDelayMs(policy, n, middle))).toEqual([
    1000, 2000, 4000, 32_000, 60_000, 60_000,
  ]);
});

test("jitter spreads a delay to both sides", () => {
  const spread = { ...policy, jitter: 0.2 };

  expect(retryDelayMs(spread, 1, () => 0)).toBe(800);
  expect(retryDelayMs(spread, 1, () => 0.99)).toBe(1196);
});

const anyDuration = fc.integer({ min: 0, max: MAX_DURATION_MS });
const anyPolicy = fc
  .record({ initialMs: anyDuration, maxMs: anyDuration, multiplier: fc.double({ min: 1, max: 100, noNaN: true }) })
  .map((shape) => ({ ...policy, ...shape }));

test("without jitter a delay never shrinks and never overflows up to attempt 10,000", () => {
  fc.assert(
    fc.property(anyPolicy, (any) => {
      let previous = 0;
      for (let n = 1; n <= 10_000; n++) {
        const delay = retryDelayMs(any, n, middle);
        if (delay < previous || delay > any.maxMs) expect.fail(`attempt ${n}: ${delay} after ${previous}`);
        previous = delay;
      }
    }),
    { numRuns: 30 },
  );
});

test("with jitter a delay is a whole number from 0 to the limit and its jitter", () => {
  const anyJitter = fc.double({ min: 0, max: 1, noNaN: true });
  const anyRandom = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
  fc.assert(
    fc.property(anyPolicy, anyJitter, anyRandom, fc.integer({ min: 1, max: 10_000 }), (any, jitter, random, n) => {
      const delay = retryDelayMs({ ...any, jitter }, n, () => random);

      expect(Number.isInteger(delay)).toBe(true);
      expect(delay).toBeGreaterThanOrEqual(0);
      expect(delay).toBeLessThanOrEqual(any.maxMs * (1 + jitter));
    }),
  );
});

test("a failure is tried again until the attempts are used up", () => {
  expect(decide({ failures: 2 })).toEqual({ kind: "retry", delayMs: 2000 });
  expect(decide({ failures: 3 })).toEqual({ kind: "dead", errorType: "Error" });
  expect(decide({ outcome: "TIMED_OUT", errorType: MESH_ERROR_TYPES.HEARTBEAT, failures: 2 })).toMatchObject({
    kind: "retry",
  });
});

test("without a limit a task is tried again for ever", () => {
  expect(decide({ policy: { ...policy, maxAttempts: 0 }, failures: 1_000_000 })).toEqual({
    kind: "retry",
    delayMs: 60_000,
  });
});

test("what the policy or the worker calls final is not tried again", () => {
  expect(decide({ errorType: "CardDeclined" })).toEqual({ kind: "dead", errorType: "CardDeclined" });
  expect(decide({ retryable: false })).toEqual({ kind: "dead", errorType: "Error" });
});

test("a task that was not started in time is dead at once", () => {
  const errorType = MESH_ERROR_TYPES.SCHEDULE_TO_START;

  expect(decide({ outcome: "TIMED_OUT", errorType })).toEqual({ kind: "dead", errorType });
});

test("an asked delay is waited for where it is longer", () => {
  expect(decide({ retryAfterMs: 5000 })).toEqual({ kind: "retry", delayMs: 5000 });
  expect(decide({ retryAfterMs: 10 })).toEqual({ kind: "retry", delayMs: 1000 });
  expect(decide({ retryAfterMs: Number.POSITIVE_INFINITY })).toEqual({ kind: "retry", delayMs: MAX_DURATION_MS });
});

test("a loss is recovered at once, the next in a row waits, and too many are WORKER_LOST", () => {
  expect(decide({ outcome: "LOST", losses: 1 })).toEqual({ kind: "retry", delayMs: 0 });
  expect(decide({ outcome: "LOST", losses: 2 })).toEqual({ kind: "retry", delayMs: 1000 });
  expect(decide({ outcome: "LOST", losses: 2, lossesInARow: 1 })).toEqual({ kind: "retry", delayMs: 0 });
  expect(decide({ outcome: "LOST", losses: 3 })).toEqual({ kind: "dead", errorType: "WORKER_LOST" });
});

test("losses do not count as failures, nor as attempts", () => {
  expect(decide({ outcome: "LOST", losses: 1, failures: 100 })).toEqual({ kind: "retry", delayMs: 0 });
  expect(decide({ policy: { ...policy, maxLost: 0 }, outcome: "LOST", losses: 1 })).toMatchObject({ kind: "dead" });
});
