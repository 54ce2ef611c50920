import { ACCEPTED, BEHIND, type PublishResult } from "@runmesh/bus/event-bus";
import { EventCollector } from "@runmesh/bus/event-collector";
import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import { MeshError } from "@runmesh/domain/errors";
import type { Db } from "@runmesh/store/db";
import { listLaneGroups, takeLaneGroups } from "@runmesh/store/lane-groups";
import { listParked } from "@runmesh/store/outbox-parked";
import { expect, test } from "vitest";
import { commitEvents, commitPack, countOutbox, readEvents } from "./outbox-rows.ts";
import { fakeBus, openMesh } from "./relay-mesh.ts";

test("a poison event is parked with its error and those behind it, until they are released in order", async () => {
  await using mesh = await openMesh();
  let poisonous = true;
  const sent: string[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) => {
      const stopped = new Set<bigint>();
      return batch.map(({ event, runId }): PublishResult => {
        if (stopped.has(runId)) return BEHIND;
        if (poisonous && event.id === "1-2") {
          stopped.add(runId);
          return { kind: "poison", error: new Error("the broker\0refuses it") };
        }
        sent.push(event.id);
        return ACCEPTED;
      });
    }),
  );

  await commitEvents(
    mesh.db,
    mesh.definitionId,
    [1, 2, 3].map((sequence) => ({ runId: 1n, sequence })),
  );
  await commitEvents(
    mesh.db,
    mesh.definitionId,
    [1, 2].map((sequence) => ({ runId: 17n, sequence })),
  );
  await relay.idle();
  await commitEvents(mesh.db, mesh.definitionId, [
    { runId: 1n, sequence: 4 },
    { runId: 17n, sequence: 3 },
  ]);
  await relay.idle();
  const parked = await listParked(mesh.db, { tenantId: 1, afterRunId: 0n, afterSequence: 0, limit: 10 });
  const sentBefore = [...sent];
  poisonous = false;
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 5 }]);
  const released = await relay.releaseParked({ tenantId: 1, runId: 1n });
  await relay.idle();

  expect(parked.map((row) => row.sequence)).toEqual([2, 3, 4]);
  expect(parked[0]!.error).toBe("Error: the broker\\0refuses it");
  expect(sentBefore).toEqual(["1-1", "17-1", "17-2", "17-3"]);
  expect(released).toBe(3);
  expect(sent.slice(sentBefore.length)).toEqual(["1-2", "1-3", "1-4", "1-5"]);
});

test("an event of a definition that cannot be read is poison of its own run only", async () => {
  await using mesh = await openMesh();
  const reader = new EventCollector();
  await mesh.bus.subscribe({ name: "reader", handler: reader.handler });

  await commitEvents(mesh.db, mesh.definitionId, [
    { runId: 1n, sequence: 1, definitionId: 999n },
    { runId: 17n, sequence: 1 },
  ]);
  await mesh.relay.idle();

  await reader.untilAll(["17-1"]);
  const parked = await listParked(mesh.db, { tenantId: 1, afterRunId: 0n, afterSequence: 0, limit: 10 });
  expect(parked.map((row) => row.run_id)).toEqual([1n]);
});

test("a poison event in a pack is parked without the events of other runs, and comes back as it was", async () => {
  await using mesh = await openMesh();
  await commitPack(mesh.db, mesh.definitionId, [1n, 17n]);
  let isPoison = true;
  const sent: Event[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) =>
      batch.map(({ event, runId }): PublishResult => {
        if (runId === 1n && isPoison)
          return event.sequence === 2n ? { kind: "poison", error: new Error("no") } : BEHIND;
        sent.push(event);
        return ACCEPTED;
      }),
    ),
  );
  const [before] = await readEvents(mesh.db, 1n);

  await relay.idle();
  const parked = await listParked(mesh.db, { tenantId: 1, afterRunId: 0n, afterSequence: 0, limit: 10 });
  const sentBefore = sent.map((event) => event.id);
  isPoison = false;
  await relay.releaseParked({ tenantId: 1, runId: 1n });
  const [after] = await readEvents(mesh.db, 1n);
  await relay.idle();

  expect(sentBefore).toEqual(["17-2", "17-3"]);
  expect(parked.map((row) => row.sequence)).toEqual([2, 3]);
  expect(after).toEqual(before);
  expect(sent.slice(2).map((event) => `${event.id} ${event.type}`)).toEqual(["1-2 20", "1-3 5"]);
});

test("a run released although it was parked and not yet removed is parked anew, and holds up no other", async () => {
  await using mesh = await openMesh();
  let isCut = true;
  const cut: Db = {
    ...hooked(mesh.db),
    one: (name, text, params) =>
      isCut && name === "remove_outbox"
        ? Promise.reject(new MeshError("UNAVAILABLE", "the connection was lost"))
        : mesh.db.one(name, text, params),
  };
  const sent: string[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) =>
      batch.map(({ event, runId }): PublishResult => {
        if (runId === 1n) return event.sequence === 1n ? { kind: "poison", error: new Error("no") } : BEHIND;
        sent.push(event.id);
        return ACCEPTED;
      }),
    ),
    { db: cut },
  );
  await commitEvents(mesh.db, mesh.definitionId, [
    { runId: 1n, sequence: 1 },
    { runId: 1n, sequence: 2 },
  ]);
  await expect(relay.runOnce()).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  isCut = false;
  const released = await relay.releaseParked({ tenantId: 1, runId: 1n });
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 17n, sequence: 1 }]);

  await relay.idle();

  const parked = await listParked(mesh.db, { tenantId: 1, afterRunId: 0n, afterSequence: 0, limit: 10 });
  expect(released).toBe(2);
  expect(sent).toEqual(["17-1"]);
  expect(parked.map((row) => [row.run_id, row.sequence])).toEqual([
    [1n, 1],
    [1n, 2],
  ]);
  expect(await countOutbox(mesh.db)).toBe(0);
});

test("a run released while a pass is under way sends nothing ahead of what was parked", async () => {
  await using mesh = await openMesh();
  let isPoison = true;
  let release: (() => Promise<unknown>) | undefined;
  const releasing: Db = {
    ...hooked(mesh.db),
    async one<T>(name: string, text: string, params: readonly unknown[]) {
      const row = await mesh.db.one<T>(name, text, params);
      if (name === "take_outbox") await release?.();
      return row;
    },
  };
  const sent: string[] = [];
  const relay = mesh.createRelay(
    "relay",
    fakeBus(async (batch) =>
      batch.map(({ event }): PublishResult => {
        if (isPoison) return { kind: "poison", error: new Error("no") };
        sent.push(event.id);
        return ACCEPTED;
      }),
    ),
    { db: releasing },
  );
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 1 }]);
  await relay.idle();
  isPoison = false;
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 2 }]);
  release = () => {
    release = undefined;
    return relay.releaseParked({ tenantId: 1, runId: 1n });
  };

  await relay.idle();

  expect(sent).toEqual(["1-1", "1-2"]);
});

test("a relay that lost its lanes before it parks parks nothing, and does not send the same again at once", async () => {
  await using mesh = await openMesh();
  let batches = 0;
  const relay = mesh.createRelay(
    "stale",
    fakeBus(async (batch) => {
      batches++;
      const seen = await listLaneGroups(mesh.db);
      const ids = seen.map((group) => group.id);
      await takeLaneGroups(mesh.db, {
        owner: "thief",
        ids,
        fences: seen.map((group) => group.fence),
        ttlMs: 60_000,
      });
      return batch.map((): PublishResult => ({ kind: "poison", error: new Error("no") }));
    }),
  );
  await commitEvents(mesh.db, mesh.definitionId, [{ runId: 1n, sequence: 1 }]);

  const first = await relay.runOnce();
  const second = await relay.runOnce();

  expect(first).toMatchObject({ tookCount: 1, settledCount: 0 });
  expect(second).toMatchObject({ tookCount: 0 });
  expect(batches).toBe(1);
  expect(relay.counters).toMatchObject({ parked: 0, lost: 1 });
  expect(await countOutbox(mesh.db)).toBe(1);
});

/** The same database, to have some of its statements replaced. */
const hooked = (db: Db): Db => ({
  isTransaction: db.isTransaction,
  rows: (...of) => db.rows(...of),
  one: (...of) => db.one(...of),
  find: (...of) => db.find(...of),
  transaction: (...of) => db.transaction(...of),
  close: () => db.close(),
});
