import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { EventBus, OutboundEvent, PublishResult } from "@runmesh/bus/event-bus";
import { EventNameReader } from "@runmesh/bus/event-names";
import { MeshError } from "@runmesh/domain/errors";
import type { Log } from "@runmesh/platform/log";
import type { Db } from "@runmesh/store/db";
import type { HeldLaneGroups } from "@runmesh/store/lane-groups";
import { type OutboxRows, takeOutbox } from "@runmesh/store/outbox";
import { discardOutbox } from "@runmesh/store/outbox-remove";
import { BatchSize } from "./batch-size.ts";
import type { LaneKeeper } from "./lane-keeper.ts";
import { createOutboundEvents } from "./outbound-events.ts";
import { parkRun } from "./parking.ts";
import { removeSettled } from "./remove-settled.ts";
import { settleBatch } from "./settle-batch.ts";

export interface PassResult {
  /** Rows read, or discarded because nobody reads. */
  readonly tookCount: number;
  /** Rows that left the outbox, sent or parked. */
  readonly settledCount: number;
  /** Rows that stay to be sent again. */
  readonly leftCount: number;
  /** There may be more: the pass was full. */
  readonly again: boolean;
}

export interface RelayCounters {
  passes: number;
  sent: number;
  discarded: number;
  parked: number;
  /** Rows left to be sent again, each time. */
  left: number;
  /** Rows sent and then not removed, or not parked, because their lane group was lost. */
  lost: number;
}

/** Nobody waits for what nobody reads: one look for each gathers what several commits wrote. */
const DISCARD_REST_MS = 40;
/** When a bus that took nothing did not say. */
const RETRY_MS = 100;
const NOTHING: PassResult = { tookCount: 0, settledCount: 0, leftCount: 0, again: false };

export interface PassOptions {
  readonly db: Db;
  readonly bus: EventBus;
  readonly keeper: LaneKeeper;
  readonly log: Log;
}

/** The passes of one relay, which makes one at a time; they keep what relay.ts numbers. */
export interface Passes {
  run(signal: AbortSignal): Promise<PassResult>;
  readonly counters: Readonly<RelayCounters>;
}

export function createPasses({ db, bus, keeper, log }: PassOptions): Passes {
  const names = new EventNameReader(db);
  const size = new BatchSize();
  const counters: RelayCounters = { passes: 0, sent: 0, discarded: 0, parked: 0, left: 0, lost: 0 };
  let discardAt = Number.NEGATIVE_INFINITY;

  async function run(signal: AbortSignal): Promise<PassResult> {
    signal.throwIfAborted();
    if (keeper.isDue()) await keeper.keep();
    const held = keeper.held();
    if (held.ids.length === 0) return NOTHING;
    counters.passes++;
    if (await bus.hasReaders()) return relayBatch(held);
    const restMs = discardAt - performance.now();
    if (restMs > 0) await sleep(restMs, undefined, { signal }).catch(() => undefined);
    return discardBatch(held);
  }

  async function discardBatch(held: HeldLaneGroups): Promise<PassResult> {
    const perGroup = size.perGroup(held.ids.length);
    const { packs, count, largest, refused } = await discardOutbox(db, { held, perGroup });
    if (refused) return relayBatch(held);
    counters.discarded += count;
    const again = size.isFull(held.ids.length, packs, largest);
    if (!again) discardAt = performance.now() + DISCARD_REST_MS;
    return { tookCount: count, settledCount: count, leftCount: 0, again };
  }

  async function relayBatch(held: HeldLaneGroups): Promise<PassResult> {
    const laneGroups = size.rotate(held.ids);
    const perGroup = size.perGroup(laneGroups.length);
    const rows = await takeOutbox(db, { laneGroups, perGroup, limit: size.limit });
    const again = size.isFull(laneGroups.length, rows.count, largestGroup(rows));
    if (rows.count === 0) return NOTHING;

    const parkedRuns = new Set(rows.parkedRunIds);
    const indexes: number[] = [];
    const behind = new Map<number, number[]>();
    for (const [index, runId] of rows.runIds.entries()) {
      if (!parkedRuns.has(runId)) indexes.push(index);
      else behind.set(runId, [...(behind.get(runId) ?? []), index]);
    }

    const settlement = settleBatch(rows, indexes, await publish(await createOutboundEvents(names, rows, indexes)));
    const settled = [...settlement.sent];
    let lostCount = 0;
    for (const { indexes, error } of settlement.poisoned.values()) {
      const parked = await parkRun(db, { held, rows, indexes, error });
      settled.push(...parked);
      lostCount += indexes.length - parked.length;
      if (parked.length === 0) continue;
      const runId = rows.runIds[indexes[0]!];
      log.error({ runId, error, count: parked.length }, "an event cannot be sent and was parked with those behind it");
    }
    for (const indexes of behind.values())
      settled.push(...(await parkRun(db, { held, rows, indexes, error: undefined })));
    const removed = await removeSettled(db, { held, rows, settled });
    const parkedCount = settled.length - settlement.sent.length;
    lostCount += removed.lostCount;

    const { leftCount, leftBecause, retryAfterMs } = settlement;
    counters.parked += parkedCount;
    counters.left += leftCount;
    counters.sent += Math.max(0, removed.count - parkedCount);
    if (lostCount > 0) {
      counters.lost += lostCount;
      await keeper.keep();
    }
    if (leftCount > 0 && settled.length === 0) {
      throw new MeshError("UNAVAILABLE", "The bus took none of the events; they will be sent again.", {
        retryAfterMs: retryAfterMs ?? RETRY_MS,
        cause: leftBecause,
      });
    }
    return { tookCount: rows.count, settledCount: removed.count, leftCount, again: again && leftCount === 0 };
  }

  /** A bus that throws has not said what it kept. */
  async function publish(events: readonly OutboundEvent[]): Promise<readonly PublishResult[]> {
    if (events.length === 0) return [];
    try {
      return await bus.publish(events);
    } catch (error) {
      return events.map(() => ({ kind: "unknown", error }));
    }
  }

  return { run, counters };
}

/** Packs of the group that has most of them. */
function largestGroup({ laneGroups }: OutboxRows): number {
  const sizes = new Map<number, number>();
  for (const group of laneGroups) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  return Math.max(0, ...sizes.values());
}
