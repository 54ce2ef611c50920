import { performance } from "node:perf_hooks";
import { fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "@runmesh/contracts/event/v1/event_pb";
import {
  countDelivery,
  holdSubscription,
  leaveSubscription,
  listMessages,
  listParkedMessageRuns,
  type MessageRow,
  parkMessages,
  removeMessages,
} from "@runmesh/store/bus-messages";
import type { Db } from "@runmesh/store/db";
import type { EmbeddedLimits } from "./embedded-limits.ts";
import type { EventHandler } from "./event-bus.ts";

export interface EmbeddedSubscriptionOptions {
  readonly db: Db;
  readonly name: string;
  readonly owner: string;
  readonly handler: EventHandler;
  readonly limits: EmbeddedLimits;
  readonly onFault: (error: unknown, what: string) => void;
}

const BATCH = 256;
const FIRST_POLL_MS = 100;
const LAST_POLL_MS = 1_000;
const MAX_RESTING_RUNS = 1_000;
const MAX_PARKED_RUNS = 10_000;
const PARKED_REFRESH_MS = 1_000;

/**
 * Delivers the messages of one subscription, in one process at a time: whoever holds its lease. Those of a run come
 * one after another; a run whose message failed rests, and others go on (invariant 6 of the bus).
 */
export class EmbeddedSubscription {
  readonly #options: EmbeddedSubscriptionOptions;
  readonly #abort = new AbortController();
  /** Until when a run rests after a failed delivery. */
  readonly #restingUntil = new Map<bigint, number>();
  #parkedRuns = new Set<bigint>();
  #parkedReadAt = Number.NEGATIVE_INFINITY;
  /** By this process's clock, counted from before the lease was asked for. */
  #heldUntil = Number.NEGATIVE_INFINITY;
  #wakeRest: (() => void) | undefined;
  #awake = false;
  readonly #ended: Promise<void>;

  constructor(options: EmbeddedSubscriptionOptions) {
    this.#options = options;
    this.#ended = Promise.all([this.#deliver(), this.#keepLease()]).then(() => undefined);
  }

  get name(): string {
    return this.#options.name;
  }

  /** There may be something new. */
  wake(): void {
    this.#awake = true;
    this.#wakeRest?.();
  }

  /** Parked messages were released: what is known of them is read again. */
  forgetParked(): void {
    this.#parkedReadAt = Number.NEGATIVE_INFINITY;
    this.wake();
  }

  async stop(): Promise<void> {
    this.#abort.abort(new Error(`the subscription ${this.name} stops`));
    await this.#ended;
  }

  async #deliver(): Promise<void> {
    let pollMs = FIRST_POLL_MS;
    while (!this.#abort.signal.aborted) {
      this.#awake = false;
      try {
        const count = this.#isHeld() ? await this.#pass() : 0;
        if (count === BATCH) continue;
        pollMs = count > 0 ? FIRST_POLL_MS : Math.min(LAST_POLL_MS, pollMs * 2);
      } catch (error) {
        this.#options.onFault(error, `delivery of the subscription ${this.name} failed and will be repeated`);
        await this.#rest(LAST_POLL_MS, false);
      }
      await this.#rest(Math.min(pollMs, this.#nextRetryMs()), true);
    }
  }

  async #keepLease(): Promise<void> {
    const { db, name, owner, limits } = this.#options;
    while (!this.#abort.signal.aborted) {
      const askedAt = performance.now();
      try {
        const held = await holdSubscription(db, { subscription: name, owner, ttlMs: limits.leaseMs });
        const wasHeld = this.#isHeld();
        this.#heldUntil = held === undefined ? Number.NEGATIVE_INFINITY : askedAt + limits.leaseMs;
        if (held !== undefined && !wasHeld) this.forgetParked();
      } catch (error) {
        this.#options.onFault(error, `the lease of the subscription ${name} could not be renewed`);
      }
      await pause(limits.leaseMs / 3, this.#abort.signal);
    }
    await leaveSubscription(db, { subscription: name, owner }).catch((error: unknown) =>
      this.#options.onFault(error, `the lease of the subscription ${name} could not be given up; it will expire`),
    );
  }

  #isHeld(): boolean {
    return performance.now() < this.#heldUntil;
  }

  /** Reads a batch, delivers it, and drops what was taken. Answers how many there were. */
  async #pass(): Promise<number> {
    const { db, name, limits } = this.#options;
    await this.#readParked();
    const now = performance.now();
    for (const [runId, until] of this.#restingUntil) if (until <= now) this.#restingUntil.delete(runId);
    if (this.#restingUntil.size >= MAX_RESTING_RUNS) return 0;

    const exceptRunIds = [...this.#parkedRuns, ...this.#restingUntil.keys()];
    const messages = await listMessages(db, { subscription: name, exceptRunIds, limit: BATCH });
    const runs = [...groupByRun(messages).values()];
    const taken: bigint[] = [];
    const worker = async () => {
      for (let run = runs.shift(); run !== undefined; run = runs.shift()) await this.#deliverRun(run, taken);
    };
    try {
      await Promise.all(Array.from({ length: Math.min(limits.concurrency, runs.length) }, worker));
    } finally {
      if (taken.length > 0) await removeMessages(db, { subscription: name, ids: taken });
    }
    return messages.length;
  }

  async #deliverRun(messages: readonly MessageRow[], taken: bigint[]): Promise<void> {
    for (const message of messages) {
      if (this.#abort.signal.aborted || !this.#isHeld()) return;
      try {
        await this.#handle(message);
      } catch (error) {
        if (!this.#abort.signal.aborted) await this.#countFailure(message, error);
        return;
      }
      taken.push(message.id);
    }
  }

  async #handle(message: MessageRow): Promise<void> {
    const { name, handler, limits } = this.#options;
    const overdue = AbortSignal.timeout(limits.deliveryTimeoutMs);
    const signal = AbortSignal.any([this.#abort.signal, overdue]);
    let onAbort: (() => void) | undefined;
    const givenUp = new Promise<never>((_, reject) => {
      onAbort = () => reject(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
    });
    try {
      const event = fromBinary(EventSchema, message.body);
      await Promise.race([handler(event, { subscription: name, number: message.deliveries + 1, signal }), givenUp]);
    } finally {
      if (onAbort !== undefined) signal.removeEventListener("abort", onAbort);
    }
  }

  async #countFailure(message: MessageRow, error: unknown): Promise<void> {
    const { db, name, limits, onFault } = this.#options;
    const runId = message.run_id;
    const counted = await countDelivery(db, { subscription: name, id: message.id });
    const deliveries = counted?.deliveries ?? limits.maxDeliveries;
    if (deliveries >= limits.maxDeliveries) {
      await parkMessages(db, { subscription: name, runId, fromId: message.id });
      if (this.#parkedRuns.size < MAX_PARKED_RUNS) this.#parkedRuns.add(runId);
      onFault(error, `the event ${message.event_id} failed ${deliveries} times in ${name} and was parked with its run`);
      return;
    }
    const restMs = Math.min(limits.lastRetryMs, limits.firstRetryMs * 2 ** (deliveries - 1));
    this.#restingUntil.set(runId, performance.now() + restMs);
    onFault(error, `the event ${message.event_id} failed in ${name} and is delivered again in ${restMs} ms`);
  }

  /** Only the holder of the lease parks, so between reads this process knows all but what was released elsewhere. */
  async #readParked(): Promise<void> {
    const age = performance.now() - this.#parkedReadAt;
    if (age < PARKED_REFRESH_MS || (this.#parkedRuns.size === 0 && Number.isFinite(age))) return;
    const rows = await listParkedMessageRuns(this.#options.db, { subscription: this.name, limit: MAX_PARKED_RUNS });
    this.#parkedRuns = new Set(rows.map((row) => row.run_id));
    this.#parkedReadAt = performance.now();
  }

  #nextRetryMs(): number {
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const until of this.#restingUntil.values()) next = Math.min(next, until - now);
    return Math.max(1, next);
  }

  /** Rests until the time is over, the subscription stops, or it is woken where that may end the rest. */
  #rest(ms: number, wakeable: boolean): Promise<void> {
    if (wakeable && this.#awake) return Promise.resolve();
    const woken = new AbortController();
    if (wakeable) this.#wakeRest = () => woken.abort();
    return pause(ms, AbortSignal.any([this.#abort.signal, woken.signal])).finally(() => {
      this.#wakeRest = undefined;
    });
  }
}

function groupByRun(messages: readonly MessageRow[]): Map<bigint, MessageRow[]> {
  const runs = new Map<bigint, MessageRow[]>();
  for (const message of messages) {
    const run = runs.get(message.run_id);
    if (run === undefined) runs.set(message.run_id, [message]);
    else run.push(message);
  }
  return runs;
}

/** Resolves after the time, or at once when the signal aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}
