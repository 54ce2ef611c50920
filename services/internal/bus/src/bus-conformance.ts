import { describe, expect, test } from "vitest";
import type { EventBus, PublishResult } from "./event-bus.ts";
import { EventCollector } from "./event-collector.ts";

/** What the suite needs of an implementation, and of the relay before it. */
export interface BusUnderTest extends AsyncDisposable {
  /** The bus of another process on the same state: `owner` names the process. Started; stopped with the test. */
  createBus(owner: string): Promise<EventBus>;
  createRelay(owner: string, bus: EventBus): RelayUnderTest;
  /** Writes events in one transaction, which stays open for a while after it has. */
  commit(events: readonly { runId: bigint; sequence: number }[], options?: { holdMs?: number }): Promise<void>;
  /** Writes an event that no implementation can send. */
  commitPoison(event: { runId: bigint; sequence: number }): Promise<void>;
  /** Rows that have not been sent. */
  countWaiting(): Promise<number>;
}

export interface RelayUnderTest {
  start(): Promise<void>;
  stop(): Promise<void>;
  runOnce(): Promise<unknown>;
  idle(): Promise<void>;
}

/** What every bus must keep; the numbers are those of the invariants in `event-bus.ts`. */
export function describeBus(name: string, open: () => Promise<BusUnderTest>): void {
  describe(name, () => {
    test("events of a run arrive in the order of its sequence (2)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const relay = mesh.createRelay("p", bus);
      const reader = await subscribe(bus, "reader");

      await mesh.commit(sequences(1n, 1, 50));
      await mesh.commit([...sequences(2n, 1, 20), ...sequences(1n, 51, 60)]);
      await relay.idle();

      await reader.untilAll([...ids(1n, 1, 60), ...ids(2n, 1, 20)]);
      expect(reader.firstArrivals(1n)).toEqual(range(1, 60));
      expect(reader.firstArrivals(2n)).toEqual(range(1, 20));
      expect(await mesh.countWaiting()).toBe(0);
    });

    test("each subscription gets every event, whatever another does (6)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const relay = mesh.createRelay("p", bus);
      const failing = await subscribe(bus, "failing");
      failing.refuse(() => true);
      const reader = await subscribe(bus, "reader");

      await mesh.commit(sequences(1n, 1, 10));
      await relay.idle();

      await reader.untilAll(ids(1n, 1, 10));
      await failing.until((events) => events.length >= 2);
      expect(failing.firstArrivals(1n)).toEqual([1]);
    });

    test("an event whose outcome is unknown is sent again with the same id (1, 3)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const unsure = answering(bus, async (batch, calls) => {
        const results = await bus.publish(batch);
        const unknown: PublishResult = { kind: "unknown", error: new Error("the answer was lost") };
        return calls === 1 ? results.map(() => unknown) : results;
      });
      const relay = mesh.createRelay("p", unsure);
      const reader = await subscribe(bus, "reader");

      await mesh.commit(sequences(1n, 1, 5));
      await expect(relay.runOnce()).rejects.toMatchObject({ reason: "UNAVAILABLE" });
      const waiting = await mesh.countWaiting();
      await relay.idle();

      await reader.untilAll(ids(1n, 1, 5));
      expect(waiting).toBe(5);
      expect(reader.firstArrivals(1n)).toEqual(range(1, 5));
      expect(await mesh.countWaiting()).toBe(0);
    });

    test("a transaction that commits after a later one is not skipped (X-1)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const relay = mesh.createRelay("p", bus);
      const reader = await subscribe(bus, "reader");
      await relay.start();

      const runs = range(1, 40).map(BigInt);
      await Promise.all(
        runs.map(async (runId) => {
          for (const sequence of range(1, 4)) await mesh.commit([{ runId, sequence }], { holdMs: Math.random() * 60 });
        }),
      );

      await reader.untilAll(runs.flatMap((runId) => ids(runId, 1, 4)));
      for (const runId of runs) expect(reader.firstArrivals(runId)).toEqual([1, 2, 3, 4]);
      await relay.stop();
    });

    test("a poison event holds up only its own run (4)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const relay = mesh.createRelay("p", bus);
      const reader = await subscribe(bus, "reader");

      await mesh.commit([...sequences(1n, 1, 2), ...sequences(17n, 1, 2)]);
      await mesh.commitPoison({ runId: 1n, sequence: 3 });
      await mesh.commit([...sequences(1n, 4, 5), ...sequences(17n, 3, 5)]);
      await relay.idle();

      await reader.untilAll([...ids(1n, 1, 2), ...ids(17n, 1, 5)]);
      expect(reader.firstArrivals(1n)).toEqual([1, 2]);
      expect(reader.firstArrivals(17n)).toEqual(range(1, 5));
      expect(await mesh.countWaiting()).toBe(0);
    });

    test("two relays on the same outbox lose nothing and keep each run's order (X-4)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const reader = await subscribe(bus, "reader");
      const relays = [mesh.createRelay("first", bus), mesh.createRelay("second", await mesh.createBus("second"))];
      const runs = range(1, 32).map(BigInt);

      await Promise.all(relays.map((relay) => relay.start()));
      await Promise.all(
        runs.map(async (runId) => {
          for (const part of range(0, 4)) await mesh.commit(sequences(runId, part * 5 + 1, part * 5 + 5));
        }),
      );

      await reader.untilAll(runs.flatMap((runId) => ids(runId, 1, 25)));
      for (const runId of runs) expect(reader.firstArrivals(runId)).toEqual(range(1, 25));
      await Promise.all(relays.map((relay) => relay.stop()));
    });

    test("a subscriber that was down misses nothing (6)", async () => {
      await using mesh = await open();
      const before = await mesh.createBus("before");
      const gone = new EventCollector();
      const subscription = await before.subscribe({ name: "reader", handler: gone.handler });
      await subscription.stop();
      await before.stop();

      const bus = await mesh.createBus("after");
      await mesh.commit(sequences(1n, 1, 10));
      await mesh.createRelay("after", bus).idle();
      const reader = await subscribe(bus, "reader");

      await reader.untilAll(ids(1n, 1, 10));
      expect(gone.events).toEqual([]);
      expect(reader.firstArrivals(1n)).toEqual(range(1, 10));
    });

    test("what a relay sent and did not remove before it died is sent again in order (X-3)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const reader = await subscribe(bus, "reader");
      let sent = () => {};
      const published = new Promise<void>((resolve) => {
        sent = resolve;
      });
      const dying = answering(bus, async (batch) => {
        await bus.publish(batch);
        sent();
        return new Promise(() => {});
      });

      await mesh.commit(sequences(1n, 1, 10));
      void mesh.createRelay("dying", dying).runOnce();
      await published;
      await mesh.commit(sequences(1n, 11, 20));
      const waiting = await mesh.countWaiting();
      const heir = mesh.createRelay("heir", bus);
      await heir.start();

      await reader.untilAll(ids(1n, 1, 20));
      expect(waiting).toBe(20);
      expect(reader.firstArrivals(1n)).toEqual(range(1, 20));
      await heir.stop();
    });

    test("a refused event is delivered again before later ones of its run, and other runs go on (6)", async () => {
      await using mesh = await open();
      const bus = await mesh.createBus("p");
      const relay = mesh.createRelay("p", bus);
      const reader = await subscribe(bus, "reader");
      let refusals = 0;
      reader.refuse((event) => event.id === "1-2" && ++refusals <= 3);

      await mesh.commit([...sequences(1n, 1, 4), ...sequences(2n, 1, 4)]);
      await relay.idle();

      await reader.untilAll([...ids(1n, 1, 4), ...ids(2n, 1, 4)]);
      const attempts = reader.events.filter((event) => event.id === "1-2").map((event) => event.number);
      expect(attempts).toEqual([1, 2, 3, 4]);
      expect(reader.firstArrivals(1n)).toEqual([1, 2, 3, 4]);
      const secondRunDone = reader.events.findIndex((event) => event.id === "2-4");
      expect(secondRunDone).toBeLessThan(reader.events.findIndex((event) => event.id === "1-3"));
    });
  });
}

async function subscribe(bus: EventBus, name: string): Promise<EventCollector> {
  const collector = new EventCollector();
  await bus.subscribe({ name, handler: collector.handler });
  return collector;
}

/** The bus with another way to publish; `calls` counts from 1. */
function answering(
  bus: EventBus,
  publish: (batch: Parameters<EventBus["publish"]>[0], calls: number) => ReturnType<EventBus["publish"]>,
): EventBus {
  let calls = 0;
  return {
    name: bus.name,
    start: () => bus.start(),
    stop: () => bus.stop(),
    subscribe: (options) => bus.subscribe(options),
    hasReaders: () => bus.hasReaders(),
    publish: (batch) => publish(batch, ++calls),
  };
}

const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, index) => first + index);

const sequences = (runId: bigint, first: number, last: number) =>
  range(first, last).map((sequence) => ({ runId, sequence }));

const ids = (runId: bigint, first: number, last: number) =>
  range(first, last).map((sequence) => `${runId}-${sequence}`);
