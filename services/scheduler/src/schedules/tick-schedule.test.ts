import { expect, test } from "vitest";
import { ticksAtOnce } from "./tick-schedule.ts";

test("the larger a graph, the fewer ticks of it one transaction starts, and one at least", () => {
  expect([1, 500, 501, 10_000, 1_000_000].map(ticksAtOnce)).toEqual([100, 100, 99, 5, 1]);
});
