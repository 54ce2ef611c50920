import { toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "@runmesh/contracts/event/v1/event_pb";
import { ACCEPTED, BEHIND, MAX_EVENT_BYTES, type OutboundEvent, type PublishResult } from "./event-bus.ts";

/** What one statement writes. */
export const MAX_WRITE_BYTES = 8 << 20;

/** Events made ready to be written, from some place of a batch on. */
export interface EncodedBatch {
  /** Where they stand in the batch. */
  readonly indexes: readonly number[];
  readonly runIds: readonly bigint[];
  readonly eventIds: readonly string[];
  /** All bodies end to end, and where each ends. */
  readonly bodies: Buffer;
  readonly ends: readonly number[];
  /** Where in the batch to go on. */
  readonly end: number;
}

/**
 * Encodes events of a batch from `first` until they fill `maxBytes`, and gives each its result: `accepted` for those
 * to be written, `poison` for one that cannot be (invariant 4), `behind` for those of its run after it (invariant 2).
 */
export function encodeBatch(
  batch: readonly OutboundEvent[],
  first: number,
  results: PublishResult[],
  maxBytes: number,
): EncodedBatch {
  const stopped = new Set<bigint>();
  for (let index = 0; index < first; index++) {
    if (results[index]?.kind !== "accepted") stopped.add(batch[index]!.runId);
  }
  const indexes: number[] = [];
  const runIds: bigint[] = [];
  const eventIds: string[] = [];
  const bodies: Uint8Array[] = [];
  const ends: number[] = [];
  let size = 0;
  let index = first;
  for (; index < batch.length && size < maxBytes; index++) {
    const { runId } = batch[index]!;
    if (stopped.has(runId)) {
      results[index] = BEHIND;
      continue;
    }
    const encoded = encode(batch[index]!);
    if ("error" in encoded) {
      results[index] = { kind: "poison", error: encoded.error };
      stopped.add(runId);
      continue;
    }
    results[index] = ACCEPTED;
    indexes.push(index);
    runIds.push(runId);
    eventIds.push(encoded.id);
    bodies.push(encoded.body);
    size += encoded.body.byteLength;
    ends.push(size);
  }
  return { indexes, runIds, eventIds, bodies: Buffer.concat(bodies, size), ends, end: index };
}

function encode(outbound: OutboundEvent): { id: string; body: Uint8Array } | { error: unknown } {
  try {
    const { event } = outbound;
    const body = toBinary(EventSchema, event);
    if (body.byteLength > MAX_EVENT_BYTES) {
      return { error: new Error(`the event has ${body.byteLength} bytes, and ${MAX_EVENT_BYTES} at most can be sent`) };
    }
    return { id: event.id, body };
  } catch (error) {
    return { error };
  }
}
