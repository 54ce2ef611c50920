import { expect, test } from "vitest";
import { median, percentile, rounded } from "./statistics.ts";

test("the median of an even count is the mean of the middle two", () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
});

test("a percentile is a value that was measured", () => {
  const values = Array.from({ length: 300 }, (_, i) => i + 1);

  expect([50, 90, 99].map((percent) => percentile(values, percent))).toEqual([150.5, 270, 297]);
});

test("figures are rounded to three digits", () => {
  expect([12_345, 0.12345, 7].map(rounded)).toEqual([12_300, 0.123, 7]);
});
