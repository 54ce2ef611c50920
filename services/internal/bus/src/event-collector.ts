import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import type { Delivery, EventHandler } from "./event-bus.ts";

const TIMEOUT_MS = 20_000;

export interface CollectedEvent {
  readonly id: string;
  readonly runId: bigint;
  readonly sequence: number;
  readonly number: number;
}

/** A subscriber for tests: keeps what it was given, in order, and tells who waits for it. */
export class EventCollector {
  readonly events: CollectedEvent[] = [];
  readonly #waiting = new Set<() => void>();
  #refuse: (event: CollectedEvent) => boolean = () => false;

  readonly handler: EventHandler = async (event: Event, delivery: Delivery) => {
    const collected = { id: event.id, runId: event.runId, sequence: Number(event.sequence), number: delivery.number };
    this.events.push(collected);
    for (const look of [...this.#waiting]) look();
    if (this.#refuse(collected)) throw new Error(`the subscriber refuses ${event.id}`);
  };

  /** From now on the handler throws for such events, after it has kept them. */
  refuse(which: (event: CollectedEvent) => boolean): void {
    this.#refuse = which;
  }

  /** Waits until the events kept are as wanted. */
  until(wanted: (events: readonly CollectedEvent[]) => boolean): Promise<void> {
    if (wanted(this.events)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const look = () => {
        if (!wanted(this.events)) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`not within ${TIMEOUT_MS} ms; so far ${this.events.map((event) => event.id).join(" ")}`));
      }, TIMEOUT_MS);
      this.#waiting.add(look);
    });
  }

  /** Waits until each of the ids has arrived at least once. */
  untilAll(ids: readonly string[]): Promise<void> {
    return this.until((events) => {
      const seen = new Set(events.map((event) => event.id));
      return ids.every((id) => seen.has(id));
    });
  }

  /** Sequences of a run in the order of their first arrival. */
  firstArrivals(runId: bigint): number[] {
    const sequences = this.events.filter((event) => event.runId === runId).map((event) => event.sequence);
    return [...new Set(sequences)];
  }
}
