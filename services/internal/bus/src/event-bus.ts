import type { Event } from "@runmesh/contracts/event/v1/event_pb";

/**
 * Where committed events go. The relay publishes, anyone may subscribe. What every implementation must keep, and
 * `bus-conformance.ts` tests:
 *
 * 1. ACCEPTED IS KEPT. An event is accepted only when every named subscription will get it, whatever process dies
 *    next. An answer that is missing, late or short is `unknown`, never `accepted`.
 * 2. ORDER. Accepted events of one run are kept in the order of the batch. When one is not accepted, no later one of
 *    its run in that batch is: they answer `behind`. So what arrives first of a run arrives in its order, whatever was
 *    sent twice.
 * 3. SENT AGAIN. The same event (the same id) may be published any number of times, by several relays at once: after an
 *    unknown outcome, or after a crash before it was removed. Subscribers may see it again; none sees it never.
 * 4. POISON STANDS ALONE. An event that can never be sent (it cannot be built or written, or is over
 *    `MAX_EVENT_BYTES`) answers `poison`, and the events of other runs in the batch are sent.
 * 5. PUBLISH ANSWERS, one result an event in the order given, within a time limit of the implementation's own. It does
 *    not throw for what may pass: it answers `unknown`. It is called by one caller at a time.
 * 6. SUBSCRIPTIONS ARE INDEPENDENT. A named one keeps its own progress while nobody serves it. Events committed after
 *    `subscribe` first resolved are delivered to it at least once, one at a time for each run. A handler that
 *    throws is given the event again, later and later, before any later one of the run; other runs go on.
 * 7. A PARTITION IS GIVEN. Where the log has partitions the implementation computes it from `lane` and `partitionCount`,
 *    the count noted when the run started, so that partitions added later reorder nothing; it is never left to a client.
 * 8. START AND STOP may be repeated in any order. After `stop` no handler is called.
 */
export interface EventBus {
  readonly name: string;
  start(): Promise<void>;
  stop(): Promise<void>;
  publish(batch: readonly OutboundEvent[]): Promise<readonly PublishResult[]>;
  subscribe(options: SubscribeOptions): Promise<Subscription>;
  /**
   * False when nobody would get what is published now, so that the relay need not read it. A log that keeps events
   * for readers to come always answers true.
   */
  hasReaders(): Promise<boolean>;
}

export interface OutboundEvent {
  readonly runId: bigint;
  /** Built when it is first read, which throws for one that cannot be built (4). */
  readonly event: Event;
  /** 0 to 255, fixed for a run. */
  readonly lane: number;
  /** Partitions of the topic when the run started; 0 where the bus has none. */
  readonly partitionCount: number;
  /** Of the request that led to the event, for the message's headers. */
  readonly traceparent?: string;
}

export type PublishResult =
  | { readonly kind: "accepted" }
  /** It can never be sent. */
  | { readonly kind: "poison"; readonly error: unknown }
  /** It may or may not have been kept: to be published again. */
  | { readonly kind: "unknown"; readonly error: unknown }
  /** It was not kept, because a subscription has reached its limit: to be published again after a while. */
  | { readonly kind: "overloaded"; readonly retryAfterMs: number }
  /** It was not kept, because an earlier one of its run was not. */
  | { readonly kind: "behind" };

export const ACCEPTED: PublishResult = { kind: "accepted" };
export const BEHIND: PublishResult = { kind: "behind" };

/** As Kafka's default limit of a message, less room for its headers. */
export const MAX_EVENT_BYTES = 1_000_000;

export interface SubscribeOptions {
  /** Of the subscription, 1 to 128 bytes of `[A-Za-z0-9._/-]`. Its progress is kept under it. */
  readonly name: string;
  /** Takes an event: when it resolves the event is not delivered again. */
  readonly handler: EventHandler;
  /** Ends the subscription's delivery here, as `stop` does; its progress stays. */
  readonly signal?: AbortSignal;
}

export type EventHandler = (event: Event, delivery: Delivery) => Promise<void>;

export interface Delivery {
  readonly subscription: string;
  /** 1 for the first. Above 1 the handler failed before; the event may arrive again with 1 as well (3). */
  readonly number: number;
  /** Aborts when the delivery is given up: it took too long, or the bus stops. */
  readonly signal: AbortSignal;
}

export interface Subscription {
  readonly name: string;
  /** Ends delivery here and waits for handlers that run. What comes meanwhile is kept. */
  stop(): Promise<void>;
}
