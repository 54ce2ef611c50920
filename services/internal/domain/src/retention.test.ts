import { expect, test } from "vitest";
import { decidePartition } from "./retention.ts";

const partition = { total: 10, kept: 5, lasting: 5, isSettled: true };

test("a partition is dropped whole once no run in it is kept and none will come", () => {
  expect(decidePartition({ ...partition, kept: 0, lasting: 0 })).toBe("drop");
  expect(decidePartition({ total: 0, kept: 0, lasting: 0, isSettled: true })).toBe("drop");
});

test("a partition in which runs may still be created is never dropped, only swept", () => {
  expect(decidePartition({ ...partition, kept: 0, lasting: 0, isSettled: false })).toBe("sweep");
  expect(decidePartition({ total: 0, kept: 0, lasting: 0, isSettled: false })).toBe("keep");
});

test("old runs beside a survivor are swept, one that goes whole within a day waits", () => {
  expect(decidePartition({ ...partition, lasting: 1 })).toBe("sweep");
  expect(decidePartition({ ...partition, lasting: 0 })).toBe("wait");
});

test("a partition without an old run is kept", () => {
  expect(decidePartition({ ...partition, kept: 10, lasting: 10 })).toBe("keep");
  expect(decidePartition({ ...partition, kept: 10, lasting: 0 })).toBe("keep");
});
