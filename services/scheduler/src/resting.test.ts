import { expect, test } from "vitest";
import { Resting } from "./resting.ts";

test("what rests is listed until its time is over, and again when it rests anew", () => {
  let now = 0;
  const resting = new Resting<string>(() => now);
  resting.add("a", 10);
  resting.add("b", 20);

  const lists = [5, 10, 20].map((at) => {
    now = at;
    return resting.list();
  });
  resting.add("a", 10);

  expect(lists).toEqual([["a", "b"], ["b"], []]);
  expect(resting.list()).toEqual(["a"]);
});

test("no more than 10,000 rest", () => {
  const resting = new Resting<number>(() => 0);

  for (let i = 0; i < 10_100; i++) resting.add(i, 1);

  expect(resting.list()).toHaveLength(10_000);
});
