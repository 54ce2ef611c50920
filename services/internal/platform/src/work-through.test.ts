import { expect, test } from "vitest";
import { workThrough } from "./work-through.ts";

test("items are worked through in order, so many at once, each once", async () => {
  const begun: number[] = [];
  let [working, most] = [0, 0];

  await workThrough([1, 2, 3, 4, 5, 6, 7], 3, async (item) => {
    begun.push(item);
    most = Math.max(most, ++working);
    await Promise.resolve();
    working--;
  });

  expect(begun).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBe(3);
});

test("one that waits holds up no other, and its failure is told when all have ended", async () => {
  const slow = Promise.withResolvers<void>();
  const done: number[] = [];
  const all = workThrough([1, 2, 3, 4], 2, async (item) => {
    if (item === 1) await slow.promise;
    done.push(item);
  });

  await expect.poll(() => done).toEqual([2, 3, 4]);
  slow.reject(new Error("one"));

  await expect(all).rejects.toThrow("one");
});

test("none begins after an abort", async () => {
  const abort = new AbortController();
  const begun: number[] = [];

  const note = async (item: number) => {
    begun.push(item);
    abort.abort();
  };

  await workThrough([1, 2, 3], 1, note, abort.signal);

  expect(begun).toEqual([1]);
});
