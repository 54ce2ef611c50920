import { create, fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "@runmesh/contracts/event/v1/event_pb";
import { expect, test } from "vitest";
import { encodeBatch } from "./encoded-batch.ts";
import type { OutboundEvent, PublishResult } from "./event-bus.ts";

const outbound = (runId: bigint, sequence: number, errorType = ""): OutboundEvent => ({
  runId,
  lane: Number(runId & 255n),
  partitionCount: 0,
  event: create(EventSchema, { id: `${runId}-${sequence}`, runId, sequence: BigInt(sequence), errorType }),
});

test("bodies stand end to end and read back", () => {
  const batch = [outbound(1n, 1), outbound(2n, 1, "Oops")];

  const encoded = encodeBatch(batch, 0, [], 1_000_000);

  const bodies = encoded.ends.map((end, index) => encoded.bodies.subarray(encoded.ends[index - 1] ?? 0, end));
  expect(bodies.map((body) => fromBinary(EventSchema, body).id)).toEqual(["1-1", "2-1"]);
  expect(encoded).toMatchObject({ indexes: [0, 1], eventIds: ["1-1", "2-1"], runIds: [1n, 2n], end: 2 });
});

test("an event that is too large or cannot be built is poison, and later ones of its run are behind it", () => {
  const unbuildable: OutboundEvent = {
    runId: 2n,
    lane: 2,
    partitionCount: 0,
    get event(): never {
      throw new Error("no definition");
    },
  };
  const batch = [
    outbound(1n, 1, "x".repeat(1_000_001)),
    unbuildable,
    outbound(1n, 2),
    outbound(3n, 1),
    outbound(2n, 2),
  ];
  const results: PublishResult[] = [];

  const encoded = encodeBatch(batch, 0, results, 8_000_000);

  expect(results.map((result) => result.kind)).toEqual(["poison", "poison", "behind", "accepted", "behind"]);
  expect(encoded.eventIds).toEqual(["3-1"]);
});

test("a part ends when it is full, and the next one still knows whose events were held back", () => {
  const batch = [
    outbound(1n, 1, "x".repeat(1_000_001)),
    outbound(2n, 1, "y".repeat(600)),
    outbound(1n, 2),
    outbound(3n, 1),
  ];
  const results: PublishResult[] = [];

  const first = encodeBatch(batch, 0, results, 500);
  const second = encodeBatch(batch, first.end, results, 500);

  expect(first).toMatchObject({ eventIds: ["2-1"], end: 2 });
  expect(second).toMatchObject({ eventIds: ["3-1"], end: 4 });
  expect(results.map((result) => result.kind)).toEqual(["poison", "accepted", "behind", "accepted"]);
});
