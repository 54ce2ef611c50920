import { EmbeddedBus } from "@runmesh/bus/embedded-bus";
import { ACCEPTED, BEHIND, type PublishResult } from "@runmesh/bus/event-bus";
import { EventCollector } from "@runmesh/bus/event-collector";
import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import { OUTBOX_TOPIC } from "@runmesh/outbox-relay/relay";
import { listLaneGroups, takeLaneGroups } from "@runmesh/store/lane-groups";
import { measureOutbox, takeOutbox } from "@runmesh/store/outbox";
import { MAX_PACK } from "@runmesh/store/outbox-packs";
import { removeOutbox, trimOutbox } from "@runmesh/store/outbox-remove";
import { expect, test } from "vitest";
import { commitEvents, commitPack, countOutbox, countParkedMessages } from "./outbox-rows.ts";
import { fakeBus, forward, gated, manyEvents, openMesh, ownersOf } from "./relay-mesh.ts";

const UNKNOWN: PublishResult = { kind: "unknown", error: new Error("unreachable") };
const ALL_GROUPS = Array.from({ length: 16 }, (_, id) => id);

test("an event tells the names its ids stand for, and its times", async () => {
  await using mesh = await openMesh();
  const { db, definitionId } = mesh;
  const { id: sessionId } = await db.one<{ id: bigint }>(
    "given_session",
    `INSERT INTO session (tenant_id, token_hash, name, handlers, queues, capabilities, slots, lease_ms)
     VALUES (1, '', 'worker-7', '{}', '{}', '{}', 1, 15000) RETURNING id`,
    [],
  );
  const heard: Event[] = [];
  mesh.bus.onEvent((event) => heard.push(event));

  await commitEvents(db, definitionId, [
    { runId: 5n, sequence: 9, type: 23, ordinal: 1, sessionId, errorType: "Oops" },
  ]);
  const { at } = await db.one<{ at: Date }>("outbox_at", "SELECT at FROM outbox", []);
  await mesh.relay.idle();

  expect(heard).toHaveLength(1);
  const [event] = heard;
  expect(event).toMatchObject({
    id: "5-9",
    type: 23,
    tenant: "default",
    runId: 5n,
    workflow: "order",
    workflowVersion: 3,
    sequence: 9n,
    taskId: (5n << 20n) + 1n,
    taskKey: "ship",
    attempt: 1,
    fence: 9n,
    worker: "worker-7",
    outcome: 2,
    errorType: "Oops",
  });
  const { seconds, nanos } = event!.time!;
  expect(Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000)).toBe(at.getTime());
});

test("with nobody to read, rows are discarded without being published", async () => {
  await using mesh = await openMesh();
  let published = 0;
  const relay = mesh.createRelay("relay", {
    ...forward(mesh.bus),
    async publish(batch) {
      published++;
      return mesh.bus.publish(batch);
    },
  });

  await commitEvents(mesh.db, mesh.definitionId, manyEvents(100, 30));
  await relay.idle();

  expect(relay.counters.discarded).toBe(3_000);
  expect(published).toBe(0);
  expect(await countOutbox(mesh.db)).toBe(0);
});

test("a subscription made by another process keeps its events from being discarded", async () => {
  await using mesh = await openMesh();
  // This process looked a moment ago, and believes that nobody reads.
  await mesh.bus.hasReaders();
  const other = new EmbeddedBus({ db: mesh.db, owner: "other" });
  const reader = new EventCollector();
  await other.subscribe({ name: "reader", handler: reader.handler });

  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 1 }]);
  const believed = await mesh.bus.hasReaders();
  await mesh.relay.idle();

  await reader.untilAll(["1-1"]);
  expect(believed).toBe(false);
  await other.stop();
});

test("a listener of one run hears of that run only", async () => {
  await using mesh = await openMesh();
  const heard: string[] = [];
  const end = mesh.bus.onEvent((event) => heard.push(event.id), { runId: 2n });

  await commitEvents(
    mesh.db,
    mesh.definitionId,
    [1n, 2n, 3n].map((runId) => ({ runId, sequence: 1 })),
  );
  await mesh.relay.idle();
  end();
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 2n, sequence: 2 }]);
  await mesh.relay.idle();

  expect(heard).toEqual(["2-1"]);
});

test("a relay that lost its lanes while it sent removes nothing, and the new holder sends again", async () => {
  await using mesh = await openMesh();
  const gate = gated();
  const sent: string[] = [];
  const stale = mesh.createRelay(
    "stale",
    fakeBus(async (batch) => {
      sent.push(...batch.map(({ event }) => `stale ${event.id}`));
      await gate.wait();
      return batch.map(() => ACCEPTED);
    }),
  );
  await commitEvents(
    mesh.db,
    mesh.definitionId,
    [1, 2].map((sequence) => ({ runId: 1n, sequence })),
  );

  const late = stale.runOnce();
  await gate.reached;
  const seen = await listLaneGroups(mesh.db);
  await takeLaneGroups(mesh.db, {
    owner: "thief",
    ids: seen.map((group) => group.id),
    fences: seen.map((group) => group.fence),
    ttlMs: 1,
  });
  gate.open();
  const result = await late;
  const waiting = await countOutbox(mesh.db);
  await stale.stop();
  const heir = mesh.createRelay(
    "heir",
    fakeBus(async (batch) => {
      sent.push(...batch.map(({ event }) => `heir ${event.id}`));
      return batch.map(() => ACCEPTED);
    }),
  );
  await heir.idle();

  expect(result.settledCount).toBe(0);
  expect(stale.counters.lost).toBe(2);
  expect(waiting).toBe(2);
  expect(sent).toEqual(["stale 1-1", "stale 1-2", "heir 1-1", "heir 1-2"]);
  expect(await countOutbox(mesh.db)).toBe(0);
});

test("two relays share the lanes evenly, and one that stops leaves its own to the other at once", async () => {
  await using mesh = await openMesh();
  const first = mesh.createRelay("first", mesh.bus, { leaseMs: 300 });
  const second = mesh.createRelay("second", mesh.bus, { leaseMs: 300 });

  await first.runOnce();
  await second.runOnce();
  const shared = await ownersOf(mesh.db);
  await first.stop();
  await second.start();

  expect(shared).toEqual({ first: 8, second: 8 });
  await expect.poll(() => ownersOf(mesh.db)).toEqual({ second: 16 });
});

test("while a subscription is full rows stay in the outbox, and go once it has room", async () => {
  await using mesh = await openMesh({ maxMessages: 10 });
  const gate = gated();
  const reader = new EventCollector();
  await mesh.bus.subscribe({
    name: "slow",
    handler: async (event, delivery) => {
      await gate.wait();
      await reader.handler(event, delivery);
    },
  });

  await commitEvents(mesh.db, mesh.definitionId, manyEvents(1, 12));
  await mesh.relay.idle();
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 13 }]);
  await expect(mesh.relay.runOnce()).rejects.toMatchObject({ reason: "UNAVAILABLE", retryAfterMs: 100 });
  const waiting = await measureOutbox(mesh.db, { limit: 100 });
  gate.open();
  await mesh.relay.idle();

  await reader.untilAll(["1-13"]);
  expect(waiting.count).toBe(1);
  expect(waiting.oldestMs).toBeGreaterThan(0);
  expect(reader.firstArrivals(1n)).toEqual(Array.from({ length: 13 }, (_, index) => index + 1));
});

test("a message that fails ten times is parked with its run, and delivered again when it is released", async () => {
  await using mesh = await openMesh({ firstRetryMs: 1, lastRetryMs: 5 });
  const reader = new EventCollector();
  reader.refuse((event) => event.id === "1-2");
  await mesh.bus.subscribe({ name: "reader", handler: reader.handler });
  const ofTheBadOne = () => reader.events.filter((event) => event.id === "1-2").length;

  await commitEvents(mesh.db, mesh.definitionId, [...manyEvents(1, 3), { runId: 2n, sequence: 1 }]);
  await mesh.relay.idle();
  await reader.until(() => ofTheBadOne() === 10);
  // The tenth failure is followed by a statement that parks; what is published before it is parked along.
  await expect.poll(() => countParkedMessages(mesh.db)).toBe(2);
  await commitEvents(mesh.db, mesh.definitionId, [
    { runId: 1n, sequence: 4 },
    { runId: 2n, sequence: 2 },
  ]);
  await mesh.relay.idle();
  await reader.untilAll(["2-2"]);
  const firstArrivals = reader.firstArrivals(1n);
  reader.refuse(() => false);
  const released = await mesh.bus.release("reader", 1n);

  await reader.untilAll(["1-4"]);
  expect(firstArrivals).toEqual([1, 2]);
  expect(released).toBe(2);
  expect(reader.firstArrivals(1n)).toEqual([1, 2, 3, 4]);
});

test("a row is removed by place and id: one that took its place stays", async () => {
  await using mesh = await openMesh();
  await mesh.relay.runOnce();
  const held = {
    owner: "relay",
    ids: ALL_GROUPS,
    fences: (await listLaneGroups(mesh.db)).map((group) => group.fence),
  };
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 1 }]);
  const rows = await takeOutbox(mesh.db, { laneGroups: ALL_GROUPS, perGroup: 10, limit: 10 });
  await mesh.db.rows("empty_outbox", "DELETE FROM outbox", []);
  await mesh.db.rows("vacuum_outbox", "VACUUM outbox", []);
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 2 }]);
  const now = await takeOutbox(mesh.db, { laneGroups: ALL_GROUPS, perGroup: 10, limit: 10 });

  const removed = await removeOutbox(mesh.db, { held, places: rows.places, ids: rows.ids });

  expect(now.places).toEqual(rows.places);
  expect(removed).toBe(0);
  expect(await countOutbox(mesh.db)).toBe(1);
});

test("a started relay sends what a wake-up tells of, and can be started and stopped many times", async () => {
  await using mesh = await openMesh();
  const reader = new EventCollector();
  await mesh.bus.subscribe({ name: "reader", handler: reader.handler });

  for (let round = 1; round <= 5; round++) {
    await mesh.relay.start();
    await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: round }]);
    mesh.wakeups.notify(OUTBOX_TOPIC);
    await reader.untilAll([`1-${round}`]);
    await mesh.relay.stop();
  }

  expect(reader.firstArrivals(1n)).toEqual([1, 2, 3, 4, 5]);
});

test("a relay and a subscription go on after every connection was terminated", async () => {
  await using mesh = await openMesh();
  const reader = new EventCollector();
  await mesh.bus.subscribe({ name: "reader", handler: reader.handler });
  await mesh.relay.start();

  for (let round = 1; round <= 3; round++) {
    await expect
      .poll(() =>
        commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: round }]).then(() => "committed", String),
      )
      .toBe("committed");
    mesh.wakeups.notify(OUTBOX_TOPIC);
    await mesh.db
      .rows(
        "",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        [],
      )
      .catch(() => undefined);
  }

  await reader.untilAll(["1-1", "1-2", "1-3"]);
  expect(reader.firstArrivals(1n)).toEqual([1, 2, 3]);
  await mesh.relay.stop();
});

test("a backlog of one run and of many is sent completely, in batches", async () => {
  await using mesh = await openMesh({ maxMessages: 100_000 });
  const sequencesOf = new Map<bigint, number[]>();
  const batches: number[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) => {
      batches.push(batch.length);
      for (const { runId, event } of batch) {
        const sequences = sequencesOf.get(runId) ?? [];
        sequences.push(Number(event.sequence));
        sequencesOf.set(runId, sequences);
      }
      return batch.map(() => ACCEPTED);
    }),
  );
  await commitEvents(mesh.db, mesh.definitionId, [...manyEvents(1, 3_000), ...manyEvents(300, 10, 100n)]);

  await relay.idle();

  // As many as fill the limit, and what else the last pack holds.
  expect(Math.max(...batches)).toBeGreaterThanOrEqual(1_000);
  expect(Math.max(...batches)).toBeLessThan(1_000 + MAX_PACK);
  expect(sequencesOf.size).toBe(301);
  expect(sequencesOf.get(1n)).toEqual(Array.from({ length: 3_000 }, (_, index) => index + 1));
  expect(await countOutbox(mesh.db)).toBe(0);
});

test("of a pack only what was not sent is sent again, and a run's end goes with the event that it follows", async () => {
  await using mesh = await openMesh();
  await commitPack(mesh.db, mesh.definitionId, [1n, 17n, 33n]);
  let isReachable = false;
  const sent: string[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) =>
      batch.map(({ event, runId }): PublishResult => {
        if (runId === 17n && !isReachable) return event.sequence === 2n ? UNKNOWN : BEHIND;
        sent.push(`${event.id} ${event.type}`);
        return ACCEPTED;
      }),
    ),
  );

  const first = await relay.runOnce();
  const waiting = await countOutbox(mesh.db);
  await expect(relay.runOnce()).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  isReachable = true;
  await relay.idle();

  expect(first).toMatchObject({ tookCount: 6, settledCount: 4, leftCount: 2 });
  expect(waiting).toBe(2);
  expect(sent).toEqual(["1-2 20", "1-3 5", "33-2 20", "33-3 5", "17-2 20", "17-3 5"]);
  expect(relay.counters).toMatchObject({ sent: 6, lost: 0 });
  expect(await countOutbox(mesh.db)).toBe(0);
});

test("a pack that shrank since it was read is not trimmed by what was read", async () => {
  await using mesh = await openMesh();
  await mesh.relay.runOnce();
  const fences = (await listLaneGroups(mesh.db)).map((group) => group.fence);
  const held = { owner: "relay", ids: ALL_GROUPS, fences };
  await commitEvents(
    mesh.db,
    mesh.definitionId,
    [1n, 17n, 33n].map((runId) => ({ runId, sequence: 1 })),
  );
  const read = () => takeOutbox(mesh.db, { laneGroups: [1], perGroup: 10, limit: 10 });
  const before = await read();
  const pack = { held, id: before.ids[0]!, size: 3 };

  const first = await trimOutbox(mesh.db, { ...pack, place: before.places[0]!, elements: [2, 3] });
  const between = await read();
  const second = await trimOutbox(mesh.db, { ...pack, place: between.places[0]!, elements: [3] });

  expect([first, second]).toEqual([true, false]);
  expect((await read()).runIds).toEqual([17, 33]);
});
