import { MeshError } from "@runmesh/domain/errors";
import type { Db } from "@runmesh/store/db";
import { measureOutbox } from "@runmesh/store/outbox";

/** Events that may wait to be sent; beyond it starts are refused, so that the table stays within bounds (G10). */
const MAX_OUTBOX_ROWS = 1_000_000;

const AGE_MS = 1_000;
const RETRY_AFTER_MS = 5_000;

/** Refuses starts while too many events wait to be sent. Completions never are: they only end what was started. */
export class OutboxGauge {
  readonly #db: Db;
  readonly #limit: number;
  #readAt = Number.NEGATIVE_INFINITY;
  #isFull = false;
  #reading: Promise<void> | undefined;

  constructor(db: Db, limit = MAX_OUTBOX_ROWS) {
    this.#db = db;
    this.#limit = limit;
  }

  /** Throws OVERLOADED while the outbox is over its limit. What it knows is at most a second old. */
  async refuseWhenFull(): Promise<void> {
    if (performance.now() - this.#readAt > AGE_MS) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    if (!this.#isFull) return;
    throw new MeshError("OVERLOADED", `${this.#limit} events wait to be sent: nothing new is started until they are`, {
      retryAfterMs: RETRY_AFTER_MS,
    });
  }

  async #read(): Promise<void> {
    const { count } = await measureOutbox(this.#db, { limit: this.#limit });
    this.#isFull = count >= this.#limit;
    this.#readAt = performance.now();
  }
}
