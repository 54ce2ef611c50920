import { describeBus } from "@runmesh/bus/bus-conformance";
import { EmbeddedBus } from "@runmesh/bus/embedded-bus";
import { createRelay } from "@runmesh/outbox-relay/relay";
import { silentLog } from "@runmesh/platform/log";
import { createWakeups } from "@runmesh/platform/wakeup";
import { useDatabase } from "@runmesh/testing/database";
import { commitEvents, countOutbox, givenDefinition } from "./outbox-rows.ts";

const TOO_LARGE = "x".repeat(1_100_000);

describeBus("embedded bus", async () => {
  const database = await useDatabase({ size: 24 });
  const { db } = database;
  const definitionId = await givenDefinition(db, "order", ["pay"]);
  const running: { stop(): Promise<void> }[] = [];
  return {
    async createBus(owner) {
      const bus = new EmbeddedBus({ db, owner, limits: { firstRetryMs: 20, leaseMs: 1_000 } });
      running.push(bus);
      await bus.start();
      return bus;
    },
    createRelay(owner, bus) {
      const relay = createRelay({ db, bus, wakeups: createWakeups(), log: silentLog, owner, leaseMs: 600 });
      running.push(relay);
      return relay;
    },
    commit: (events, options) => commitEvents(db, definitionId, events, options),
    commitPoison: (event) => commitEvents(db, definitionId, [{ ...event, errorType: TOO_LARGE }]),
    countWaiting: () => countOutbox(db),
    async [Symbol.asyncDispose]() {
      await Promise.all(running.map((service) => service.stop()));
      await database.close();
    },
  };
});
