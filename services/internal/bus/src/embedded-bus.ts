import { performance } from "node:perf_hooks";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import {
  addMessages,
  addSubscription,
  listSubscriptions,
  removeSubscription,
  unparkMessages,
} from "@runmesh/store/bus-messages";
import type { Db } from "@runmesh/store/db";
import { EMBEDDED_LIMITS, type EmbeddedLimits } from "./embedded-limits.ts";
import { EmbeddedSubscription } from "./embedded-subscription.ts";
import { type EncodedBatch, encodeBatch, MAX_WRITE_BYTES } from "./encoded-batch.ts";
import {
  ACCEPTED,
  type EventBus,
  type OutboundEvent,
  type PublishResult,
  type SubscribeOptions,
  type Subscription,
} from "./event-bus.ts";
import { type LiveListener, LiveListeners } from "./live-listeners.ts";

export interface EmbeddedBusOptions {
  readonly db: Db;
  /** Names this process among those that share the database; no two may have the same. */
  readonly owner: string;
  readonly limits?: Partial<EmbeddedLimits>;
  /** Is told what went wrong and is tried again, or was set aside. */
  readonly onFault?: (error: unknown, what: string) => void;
}

/** How old the list of subscriptions and of what they keep may be. */
const SUBSCRIPTIONS_AGE_MS = 1_000;
/** The same while one has reached its limit. */
const OVERLOADED_AGE_MS = 100;
const NAME = /^[A-Za-z0-9._/-]{1,128}$/;

/**
 * The bus without a broker: named subscriptions keep their messages in the database, and listeners in this process
 * get hints. While there are neither, `hasReaders` says so, for one look a second, and nothing need be published.
 */
export class EmbeddedBus implements EventBus {
  readonly name = "embedded-bus";
  /** Since the start, for metrics. */
  readonly counters = { published: 0, kept: 0, poison: 0, overloaded: 0 };
  readonly #db: Db;
  readonly #owner: string;
  readonly #limits: EmbeddedLimits;
  readonly #onFault: (error: unknown, what: string) => void;
  readonly #listeners = new LiveListeners();
  readonly #served = new Map<string, EmbeddedSubscription>();
  #kept: { readonly readAt: number; readonly counts: Map<string, number> } | undefined;

  constructor(options: EmbeddedBusOptions) {
    this.#db = options.db;
    this.#owner = options.owner;
    this.#limits = { ...EMBEDDED_LIMITS, ...options.limits };
    this.#onFault = options.onFault ?? (() => undefined);
  }

  async start(): Promise<void> {}

  async stop(): Promise<void> {
    await Promise.all([...this.#served.values()].map((subscription) => this.#stopServing(subscription)));
  }

  /** Hints of what is published in this process, of one run or of all; returns what ends them. */
  onEvent(listener: LiveListener, options: { runId?: bigint } = {}): () => void {
    return this.#listeners.add(listener, options.runId);
  }

  async hasReaders(): Promise<boolean> {
    return this.#listeners.count > 0 || (await this.#readKept()).size > 0;
  }

  async publish(batch: readonly OutboundEvent[]): Promise<readonly PublishResult[]> {
    // Another process may have subscribed since the last look, and no event may be lost to it: so nobody is looked for
    // once more. A relay that asked `hasReaders` before comes here only for listeners, or when it met a subscription.
    let kept = await this.#readKept();
    if (kept.size === 0) kept = await this.#readKept(0);
    const results = kept.size === 0 ? batch.map(() => ACCEPTED) : await this.#keep(batch, kept);
    this.counters.published += batch.length;
    if (this.#listeners.count > 0) {
      for (const [index, outbound] of batch.entries()) {
        if (results[index]?.kind === "accepted") this.#listeners.tell(outbound);
      }
    }
    return results;
  }

  async subscribe(options: SubscribeOptions): Promise<Subscription> {
    const { name, handler, signal } = options;
    if (!NAME.test(name)) throw invalidField("name", "must be 1 to 128 characters of [A-Za-z0-9._/-]");
    if (this.#served.has(name))
      throw new MeshError("ALREADY_EXISTS", `The subscription ${name} is served here already.`);
    signal?.throwIfAborted();
    await addSubscription(this.#db, { name });
    this.#kept = undefined;
    if (this.#served.has(name))
      throw new MeshError("ALREADY_EXISTS", `The subscription ${name} is served here already.`);
    const subscription = new EmbeddedSubscription({
      db: this.#db,
      name,
      owner: this.#owner,
      handler,
      limits: this.#limits,
      onFault: this.#onFault,
    });
    this.#served.set(name, subscription);
    const stop = () => this.#stopServing(subscription);
    signal?.addEventListener("abort", stop, { once: true });
    return {
      name,
      stop: async () => {
        signal?.removeEventListener("abort", stop);
        await stop();
      },
    };
  }

  /** Ends a named subscription for good, with what it kept. One that nobody serves any more fills up, then blocks all. */
  async forget(name: string): Promise<void> {
    const subscription = this.#served.get(name);
    if (subscription !== undefined) await this.#stopServing(subscription);
    await removeSubscription(this.#db, { name });
    this.#kept = undefined;
  }

  /** Delivers a run's parked messages again. Answers how many there were. */
  async release(name: string, runId: bigint): Promise<number> {
    const released = await unparkMessages(this.#db, { subscription: name, runId });
    this.#served.get(name)?.forgetParked();
    return released.length;
  }

  async #stopServing(subscription: EmbeddedSubscription): Promise<void> {
    await subscription.stop();
    if (this.#served.get(subscription.name) === subscription) this.#served.delete(subscription.name);
  }

  /** Writes the events to every subscription, in parts of bounded size: after one that failed the rest is unknown. */
  async #keep(batch: readonly OutboundEvent[], kept: Map<string, number>): Promise<readonly PublishResult[]> {
    const full = [...kept.values()].some((count) => count >= this.#limits.maxMessages);
    if (full) {
      this.counters.overloaded++;
      return batch.map(() => ({ kind: "overloaded", retryAfterMs: OVERLOADED_AGE_MS }));
    }
    const results: PublishResult[] = [];
    for (let first = 0; first < batch.length; ) {
      const encoded = encodeBatch(batch, first, results, MAX_WRITE_BYTES);
      first = encoded.end;
      if (encoded.indexes.length === 0) continue;
      try {
        await this.#write(encoded, kept);
      } catch (error) {
        const unknown: PublishResult = { kind: "unknown", error };
        for (const index of encoded.indexes) results[index] = unknown;
        for (; first < batch.length; first++) results[first] = unknown;
      }
    }
    this.counters.poison += results.filter((result) => result.kind === "poison").length;
    return results;
  }

  async #write(encoded: EncodedBatch, kept: Map<string, number>): Promise<void> {
    await addMessages(this.#db, encoded);
    this.counters.kept += encoded.indexes.length;
    for (const [name, count] of kept) kept.set(name, count + encoded.indexes.length);
    for (const subscription of this.#served.values()) subscription.wake();
  }

  /** Messages that each subscription keeps, about: read once a second, more often while one is full. */
  async #readKept(atMostAgeMs = SUBSCRIPTIONS_AGE_MS): Promise<Map<string, number>> {
    const now = performance.now();
    const full = [...(this.#kept?.counts.values() ?? [])].some((count) => count >= this.#limits.maxMessages);
    const maxAgeMs = full ? Math.min(OVERLOADED_AGE_MS, atMostAgeMs) : atMostAgeMs;
    if (this.#kept !== undefined && now - this.#kept.readAt < maxAgeMs) return this.#kept.counts;
    const rows = await listSubscriptions(this.#db, { limit: this.#limits.maxMessages });
    const counts = new Map(rows.map((row) => [row.name, row.count]));
    this.#kept = { readAt: now, counts };
    return counts;
  }
}
