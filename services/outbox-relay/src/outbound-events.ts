import type { OutboundEvent } from "@runmesh/bus/event-bus";
import { toEventMessage } from "@runmesh/bus/event-message";
import type { EventNameReader, EventNames } from "@runmesh/bus/event-names";
import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import { laneOf } from "@runmesh/domain/ids";
import { type EventRow, type OutboxRows, outboxRow } from "@runmesh/store/outbox";

/** A row on its way out. Its message is built only when a reader is there to want it. */
class RowEvent implements OutboundEvent {
  readonly runId: bigint;
  readonly lane: number;
  /** The rows of a bus without partitions have none noted. */
  readonly partitionCount = 0;
  readonly #row: EventRow;
  readonly #names: EventNames | undefined;
  #event: Event | undefined;

  constructor(row: EventRow, names: EventNames | undefined) {
    this.runId = row.runId;
    this.lane = laneOf(row.runId);
    this.#row = row;
    this.#names = names;
  }

  get event(): Event {
    if (this.#names === undefined) {
      throw new Error(`the definition ${this.#row.definitionId} of the event, or its tenant, cannot be read`);
    }
    this.#event ??= toEventMessage(this.#row, this.#names);
    return this.#event;
  }
}

/** The rows at the indexes given, ready to be published. */
export async function createOutboundEvents(
  names: EventNameReader,
  rows: OutboxRows,
  indexes: readonly number[],
): Promise<OutboundEvent[]> {
  const picked = indexes.map((index) => outboxRow(rows, index));
  const found = await names.find(picked);
  return picked.map((row, place) => new RowEvent(row, found[place]));
}
