import { EmbeddedBus } from "@runmesh/bus/embedded-bus";
import type { EventBus, OutboundEvent, PublishResult } from "@runmesh/bus/event-bus";
import { createRelay, type Relay, type RelayOptions } from "@runmesh/outbox-relay/relay";
import { silentLog } from "@runmesh/platform/log";
import { createWakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listLaneGroups } from "@runmesh/store/lane-groups";
import { useDatabase } from "@runmesh/testing/database";
import { givenDefinition } from "./outbox-rows.ts";

export interface Mesh extends AsyncDisposable {
  readonly db: Db;
  readonly definitionId: bigint;
  readonly bus: EmbeddedBus;
  readonly wakeups: ReturnType<typeof createWakeups>;
  /** The one relay of most tests, named `relay`, made when it is first used. */
  readonly relay: Relay;
  createRelay(owner: string, bus: EventBus, options?: Partial<RelayOptions>): Relay;
}

export async function openMesh(
  limits: NonNullable<ConstructorParameters<typeof EmbeddedBus>[0]["limits"]> = {},
): Promise<Mesh> {
  // The relay's statements run on connections with fixed plans.
  const database = await useDatabase({ purpose: "hot" });
  const { db } = database;
  const wakeups = createWakeups();
  const bus = new EmbeddedBus({ db, owner: "process", limits });
  const running: { stop(): Promise<void> }[] = [bus];
  const createNamed = (owner: string, on: EventBus, options: Partial<RelayOptions> = {}) => {
    const relay = createRelay({ db, bus: on, wakeups, log: silentLog, owner, ...options });
    running.unshift(relay);
    return relay;
  };
  let relay: Relay | undefined;
  return {
    db,
    definitionId: await givenDefinition(db, "order", ["pay", "ship"]),
    bus,
    wakeups,
    get relay() {
      relay ??= createNamed("relay", bus);
      return relay;
    },
    createRelay: createNamed,
    async [Symbol.asyncDispose]() {
      for (const service of running) await service.stop();
      await database.close();
    },
  };
}

export function manyEvents(runCount: number, eventCount: number, firstRunId = 1n) {
  return Array.from({ length: runCount * eventCount }, (_, index) => ({
    runId: firstRunId + BigInt(Math.floor(index / eventCount)),
    sequence: (index % eventCount) + 1,
  }));
}

export async function ownersOf(db: Db): Promise<Record<string, number>> {
  const owners: Record<string, number> = {};
  for (const { owner, live } of await listLaneGroups(db)) if (live) owners[owner] = (owners[owner] ?? 0) + 1;
  return owners;
}

export function forward(bus: EventBus): EventBus {
  return {
    name: bus.name,
    start: () => bus.start(),
    stop: () => bus.stop(),
    subscribe: (options) => bus.subscribe(options),
    hasReaders: () => bus.hasReaders(),
    publish: (batch) => bus.publish(batch),
  };
}

/** A bus that only publishes, to readers that are always there. */
export function fakeBus(publish: (batch: readonly OutboundEvent[]) => Promise<readonly PublishResult[]>): EventBus {
  return {
    name: "fake-bus",
    start: async () => {},
    stop: async () => {},
    subscribe: () => Promise.reject(new Error("nobody subscribes here")),
    hasReaders: async () => true,
    publish,
  };
}

/** Holds up whoever waits until it is opened; `reached` tells that someone does. */
export function gated() {
  const opened = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  return {
    reached: reached.promise,
    open: () => opened.resolve(),
    wait: () => {
      reached.resolve();
      return opened.promise;
    },
  };
}
