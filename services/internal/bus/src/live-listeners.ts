import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import { MeshError } from "@runmesh/domain/errors";
import type { OutboundEvent } from "./event-bus.ts";

/** Hears of events as they are published. Must return at once; what it throws is dropped. */
export type LiveListener = (event: Event) => void;

const MAX_LISTENERS = 100_000;

/**
 * Hints within this process for those who watch: nothing is kept, an event may be missed or told twice. Whoever needs
 * every event reads the run's history and takes a hint as the reason to look.
 */
export class LiveListeners {
  readonly #ofAll = new Set<{ listener: LiveListener }>();
  readonly #byRun = new Map<bigint, Set<{ listener: LiveListener }>>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Listens to one run, or to all; returns what ends it. Throws OVERLOADED above 100,000 listeners. */
  add(listener: LiveListener, runId?: bigint): () => void {
    if (this.#count >= MAX_LISTENERS) {
      throw new MeshError("OVERLOADED", "Too many listeners to live events.", { retryAfterMs: 1_000 });
    }
    const entry = { listener };
    const entries = runId === undefined ? this.#ofAll : (this.#byRun.get(runId) ?? new Set());
    entries.add(entry);
    if (runId !== undefined) this.#byRun.set(runId, entries);
    this.#count++;
    return () => {
      if (!entries.delete(entry)) return;
      this.#count--;
      if (runId !== undefined && entries.size === 0 && this.#byRun.get(runId) === entries) this.#byRun.delete(runId);
    };
  }

  /** Builds an event only where someone listens to it. */
  tell(outbound: OutboundEvent): void {
    const ofRun = this.#byRun.get(outbound.runId);
    if (this.#ofAll.size === 0 && ofRun === undefined) return;
    for (const entries of [this.#ofAll, ofRun ?? []]) {
      for (const { listener } of [...entries]) {
        try {
          listener(outbound.event);
        } catch {
          // A listener's fault, or an event that cannot be built, must not reach the relay: this is only a hint.
        }
      }
    }
  }
}
