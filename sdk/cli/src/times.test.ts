import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { formatDuration, formatSpan, formatTime } from "./times.ts";

test.each([
  [-5, "0 ms"],
  [840.4, "840 ms"],
  [3_449, "3.4 s"],
  [59_999, "59.9 s"],
  [125_000, "2 min 05 s"],
  [11_220_000, "3 h 07 min"],
])("%i ms are shown as %s", (ms, shown) => {
  expect(formatDuration(ms)).toBe(shown);
});

test("times are shown in UTC, and what is missing is empty", () => {
  expect(formatTime(timestampFromMs(1_772_366_407_999))).toBe("2026-03-01 12:00:07");
  expect(formatTime(undefined)).toBe("");
  expect(formatSpan(timestampFromMs(0), timestampFromMs(1_500))).toBe("1.5 s");
  expect(formatSpan(timestampFromMs(0), undefined)).toBe("");
});
