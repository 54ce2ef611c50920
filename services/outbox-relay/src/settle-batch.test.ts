import { ACCEPTED, BEHIND, type PublishResult } from "@runmesh/bus/event-bus";
import type { OutboxRows } from "@runmesh/store/outbox";
import { expect, test } from "vitest";
import { settleBatch } from "./settle-batch.ts";

const rowsOf = (...runIds: number[]) => ({ count: runIds.length, runIds }) as unknown as OutboxRows;
const all = (rows: OutboxRows) => rows.runIds.map((_, index) => index);

const UNKNOWN: PublishResult = { kind: "unknown", error: "lost" };
const POISON: PublishResult = { kind: "poison", error: "too large" };

test("what was accepted is removed", () => {
  const rows = rowsOf(1, 2, 1);

  const settlement = settleBatch(rows, all(rows), [ACCEPTED, ACCEPTED, ACCEPTED]);

  expect(settlement).toMatchObject({ sent: [0, 1, 2], leftCount: 0 });
});

test("nothing of a run is removed after the first event whose outcome is unknown", () => {
  const rows = rowsOf(1, 1, 2, 1);

  const settlement = settleBatch(rows, all(rows), [ACCEPTED, UNKNOWN, ACCEPTED, ACCEPTED]);

  expect(settlement).toMatchObject({ sent: [0, 2], leftCount: 2, leftBecause: "lost" });
});

test("a poison event takes the later ones of its run with it, and no other", () => {
  const rows = rowsOf(1, 2, 1, 1, 2);

  const settlement = settleBatch(rows, all(rows), [ACCEPTED, ACCEPTED, POISON, BEHIND, ACCEPTED]);

  expect(settlement.sent).toEqual([0, 1, 4]);
  expect([...settlement.poisoned]).toEqual([[1, { indexes: [2, 3], error: "too large" }]]);
  expect(settlement.leftCount).toBe(0);
});

test("an overloaded bus leaves everything and says how long to wait", () => {
  const rows = rowsOf(1, 2);
  const overloaded: PublishResult = { kind: "overloaded", retryAfterMs: 250 };

  const settlement = settleBatch(rows, all(rows), [overloaded, overloaded]);

  expect(settlement).toMatchObject({ sent: [], leftCount: 2, retryAfterMs: 250 });
});

test("a bus that answers fewer results than events is a bug that is told", () => {
  const rows = rowsOf(1, 2);

  expect(() => settleBatch(rows, all(rows), [ACCEPTED])).toThrow("1 results for 2 events");
});
