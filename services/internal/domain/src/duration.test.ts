import fc from "fast-check";
import { expect, test } from "vitest";
import { formatDuration, MAX_DURATION_MS, parseDuration } from "./duration.ts";

test.each([
  ["", 0],
  ["0", 0],
  ["0s", 0],
  ["250ms", 250],
  ["1m", 60_000],
  ["1m5ms", 60_005],
  ["1h30m", 5_400_000],
  ["90s", 90_000],
  ["366d", MAX_DURATION_MS],
])("%j is %d ms", (text, ms) => {
  expect(parseDuration(text)).toEqual({ ok: true, ms });
});

test.each([
  "1",
  " 1s",
  "1 s",
  "1s ",
  "-1s",
  "+1s",
  "1.5s",
  "1e3s",
  "s",
  "1S",
  "1w",
  "30m1h",
  "1s1s",
  "1٣s",
  "1s\n",
  `${"0".repeat(99)}s`,
])("%j is no duration", (text) => {
  expect(parseDuration(text)).toMatchObject({ ok: false, why: expect.stringContaining("must be a duration") });
});

test.each(["367d", "366d1ms", "9999999999999999999999999d"])("%s is too long", (text) => {
  expect(parseDuration(text)).toEqual({ ok: false, why: "must be at most 366d" });
});

test("what is written reads back", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: MAX_DURATION_MS }), (ms) => {
      expect(parseDuration(formatDuration(ms))).toEqual({ ok: true, ms });
    }),
  );
});

test("text is written with the largest units first", () => {
  expect(formatDuration(93_784_005)).toBe("1d2h3m4s5ms");
  expect(formatDuration(0)).toBe("0s");
});

test("any text is answered without throwing", () => {
  fc.assert(fc.property(fc.string(), (text) => typeof parseDuration(text).ok === "boolean"));
});
