import fc from "fast-check";
import { expect, test } from "vitest";
import { listDueTicks, MAX_BUFFERED_TICKS, MAX_MISSED_COUNTED, OVERLAPS, type Overlap, planTicks } from "./schedule.ts";

const MINUTE = 60_000;
const everyMinute = (afterMs: number) => (Math.floor(afterMs / MINUTE) + 1) * MINUTE;
const at = (...minutes: number[]) => minutes.map((minute) => minute * MINUTE);
const OVERLAP_NAMES = Object.keys(OVERLAPS) as Overlap[];

const plan = (overlap: Overlap, ticks: number[], isActive = false, bufferedCount = 0) =>
  planTicks({ overlap, ticks, isActive, bufferedCount });

test("ticks within the catch-up window are due, older ones are missed", () => {
  const due = listDueTicks({ nextAt: 1 * MINUTE, nowMs: 20.5 * MINUTE, catchUpMs: 3 * MINUTE, next: everyMinute });

  expect(due).toEqual({ ticks: at(18, 19, 20), missedCount: 17, lastAt: 20 * MINUTE, nextAt: 21 * MINUTE });
});

test("a tick exactly as old as the window still starts", () => {
  const due = listDueTicks({ nextAt: 10 * MINUTE, nowMs: 20 * MINUTE, catchUpMs: 10 * MINUTE, next: everyMinute });

  expect(due.ticks[0]).toBe(10 * MINUTE);
  expect(due.missedCount).toBe(0);
});

test("a long outage is counted up to a limit and does not hold up the ticks that are due", () => {
  const due = listDueTicks({ nextAt: MINUTE, nowMs: 1e6 * MINUTE, catchUpMs: MINUTE, next: everyMinute });

  expect(due.missedCount).toBe(MAX_MISSED_COUNTED);
  expect(due.ticks).toEqual(at(1e6 - 1, 1e6));
});

test("a pattern without further ticks ends", () => {
  const due = listDueTicks({ nextAt: MINUTE, nowMs: 2 * MINUTE, catchUpMs: MINUTE, next: () => undefined });

  expect(due).toEqual({ ticks: [MINUTE], missedCount: 0, lastAt: MINUTE, nextAt: undefined });
});

test("skip starts the first of the due ticks, and none while a run is active", () => {
  expect(plan("SKIP", at(1, 2, 3))).toMatchObject({ start: at(1), skip: at(2, 3), buffer: [] });
  expect(plan("SKIP", at(1), true)).toMatchObject({ start: [], skip: at(1) });
});

test("buffer one keeps one tick waiting", () => {
  expect(plan("BUFFER_ONE", at(1, 2, 3))).toMatchObject({ start: at(1), buffer: at(2), skip: at(3) });
  expect(plan("BUFFER_ONE", at(4), true, 1)).toMatchObject({ start: [], buffer: [], skip: at(4) });
});

test("a buffered tick starts before a newer one, which takes its place", () => {
  expect(plan("BUFFER_ONE", at(4), false, 1)).toMatchObject({ startBuffered: 1, start: [], buffer: at(4), skip: [] });
  expect(plan("SKIP", at(4), false, 2)).toMatchObject({ startBuffered: 1, start: [], buffer: [], skip: at(4) });
});

test("buffer all keeps a hundred waiting", () => {
  const { buffer, skip } = plan("BUFFER_ALL", at(1, 2, 3), true, 98);

  expect(buffer).toEqual(at(1, 2));
  expect(skip).toEqual(at(3));
});

test("cancel previous starts the newest due tick in place of what is active", () => {
  expect(plan("CANCEL_PREVIOUS", at(1, 2, 3), true)).toMatchObject({
    start: at(3),
    skip: at(1, 2),
    cancelActive: true,
  });
  expect(plan("CANCEL_PREVIOUS", [], true)).toMatchObject({ start: [], cancelActive: false });
});

test("allow starts everything, the buffered of an earlier policy too", () => {
  expect(plan("ALLOW", at(1, 2), true, 3)).toMatchObject({ startBuffered: 3, start: at(1, 2), skip: [], buffer: [] });
});

test("every due tick is started, buffered or skipped, once and in order; and limits hold", () => {
  const asked = fc.record({
    overlap: fc.constantFrom(...OVERLAP_NAMES),
    ticks: fc
      .uniqueArray(fc.integer({ min: 1, max: 500 }), { maxLength: 100 })
      .map((ticks) => at(...ticks.sort((a, b) => a - b))),
    isActive: fc.boolean(),
    bufferedCount: fc.integer({ min: 0, max: MAX_BUFFERED_TICKS }),
  });
  fc.assert(
    fc.property(asked, (p) => {
      const made = planTicks(p);
      const all = [...made.start, ...made.buffer, ...made.skip].sort((a, b) => a - b);
      const left = p.bufferedCount - made.startBuffered + made.buffer.length;

      expect(all).toEqual(p.ticks);
      expect(left).toBeLessThanOrEqual(MAX_BUFFERED_TICKS);
      expect(left).toBeGreaterThanOrEqual(0);
      if (p.overlap === "ALLOW") return;
      const startCount = made.start.length + made.startBuffered;
      expect(startCount).toBeLessThanOrEqual(p.isActive && !made.cancelActive ? 0 : 1);
    }),
  );
});

test("whenever a schedule is looked at, each of its ticks is dealt with once", () => {
  const looks = fc.array(fc.integer({ min: 0, max: 9 * MINUTE }), { minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(looks, (rests) => {
      let nextAt: number | undefined = 5 * MINUTE;
      let nowMs = 0;
      const seen: number[] = [];
      for (const rest of rests) {
        nowMs += rest;
        const due = listDueTicks({ nextAt, nowMs, catchUpMs: 10 * MINUTE, next: everyMinute });
        seen.push(...due.ticks);
        nextAt = due.nextAt;
        expect(due.missedCount).toBe(0);
      }

      const last = Math.floor(nowMs / MINUTE);
      expect(seen).toEqual(at(...Array.from({ length: Math.max(0, last - 4) }, (_, i) => i + 5)));
    }),
  );
});
