import { expect, test } from "vitest";
import { readDuration } from "./duration.ts";

test.each([
  ["0", 0],
  ["250ms", 250],
  ["30s", 30_000],
  ["1h30m", 5_400_000],
  ["366d", 31_622_400_000],
])("%s is %d ms", (text, ms) => {
  expect(readDuration(text)).toBe(ms);
});

test.each(["", "5", "s", "1 s", "-1s", "1h 30m", "367d", "1x"])("%j is refused", (text) => {
  expect(() => readDuration(text)).toThrow(/a duration is such as/);
});
