import fc from "fast-check";
import { expect, test } from "vitest";
import { laneGroupOf, laneOf, MAX_ORDINAL, ordinalOf, runIdOf, taskId } from "./ids.ts";

test("a task's id gives its run and ordinal back, and rises with both", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 1n, max: 2n ** 43n - 1n }), fc.nat(MAX_ORDINAL), (runId, ordinal) => {
      const id = taskId(runId, ordinal);

      expect([runIdOf(id), ordinalOf(id)]).toEqual([runId, ordinal]);
      expect(id).toBeLessThan(2n ** 63n);
      expect(id).toBeLessThan(taskId(runId + 1n, 0));
    }),
  );
});

test.each([-1, 0.5, MAX_ORDINAL + 1, Number.NaN])("%d is no ordinal", (ordinal) => {
  expect(() => taskId(1n, ordinal)).toThrow(`not an ordinal of a task: ${ordinal}`);
});

test("a lane is in the group of its run", () => {
  expect([laneOf(0x1ffn), laneGroupOf(0x1ffn)]).toEqual([255, 15]);
  expect(laneOf(0x1ffn) % 16).toBe(laneGroupOf(0x1ffn));
});
