import { expect, test } from "vitest";
import { MemoryTokenBuckets } from "./token-buckets.ts";

test("a bucket gives its burst, then as much as comes back, and says how long to wait", () => {
  let now = 0;
  const buckets = new MemoryTokenBuckets(() => now);
  const take = () => buckets.take({ bucket: "a", count: 1, perSecond: 2, burst: 2 });

  expect([take(), take(), take()]).toEqual([0, 0, 500]);
  now = 499;
  expect(take()).toBe(1);
  now = 500;
  expect(take()).toBe(0);
});

test("a batch larger than the burst passes once and leaves a debt", () => {
  let now = 0;
  const buckets = new MemoryTokenBuckets(() => now);
  const take = (count: number) => buckets.take({ bucket: "a", count, perSecond: 100, burst: 100 });

  expect(take(1_000)).toBe(0);
  expect(take(1)).toBe(9_010);
  now = 9_010;
  expect(take(1)).toBe(0);
});

test("one bucket's use leaves another's alone", () => {
  const buckets = new MemoryTokenBuckets(() => 0);
  const take = (bucket: string) => buckets.take({ bucket, count: 1, perSecond: 1, burst: 1 });

  expect([take("a"), take("a"), take("b")]).toEqual([0, 1_000, 0]);
});
