import { expect, test } from "vitest";
import { BatchSize } from "./batch-size.ts";

test("while every group is busy each is read up to an equal share in the end", () => {
  const size = new BatchSize();

  for (let pass = 0; pass < 10; pass++) size.isFull(16, 1_000, Math.min(size.perGroup(16), 1_000));

  expect(size.perGroup(16)).toBe(63);
});

test("where one group holds the backlog it gets the whole limit again", () => {
  const size = new BatchSize();
  for (let pass = 0; pass < 10; pass++) size.isFull(16, 1_000, size.perGroup(16));

  const first = size.isFull(16, size.perGroup(16), size.perGroup(16));
  for (let pass = 0; pass < 3; pass++) size.isFull(16, size.perGroup(16) - 1, size.perGroup(16));

  expect(first).toBe(true);
  expect(size.perGroup(16)).toBe(1_000);
});

test("a pass that left nothing behind is not full", () => {
  expect(new BatchSize().isFull(4, 40, 20)).toBe(false);
});

test("each group is read first in its turn", () => {
  const size = new BatchSize();

  const firsts = [1, 2, 3, 4].map(() => size.rotate([7, 8, 9])[0]);

  expect(firsts).toEqual([7, 8, 9, 7]);
});
