import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { EventBus } from "@runmesh/bus/event-bus";
import { MeshError } from "@runmesh/domain/errors";
import type { Log } from "@runmesh/platform/log";
import { createLoop } from "@runmesh/platform/loop";
import type { Service } from "@runmesh/platform/service";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { LaneKeeper } from "./lane-keeper.ts";
import { releaseParked } from "./parking.ts";
import { createPasses, type PassResult, type RelayCounters } from "./relay-pass.ts";

/**
 * Moves committed events from the outbox to the bus. What it keeps (DESIGN G3):
 *
 * 1. A row leaves the outbox only after the bus accepted it, or with its run to the parked ones. What is unknown stays
 *    and is sent again, with the same id.
 * 2. Every pass looks at all rows of a group from the lowest id: there is no position to remember, so a transaction
 *    that commits late is not passed over.
 * 3. Rows of a run are taken by id, which is the order of its sequence, and no row of a run is sent ahead of one that
 *    stays or is parked.
 * 4. Only the holder of a run's lane group removes or parks its rows, and the database checks that in the statement
 *    that does. A relay that lost a group can at most send again what the new holder sends as well.
 * 5. Nothing is sent while a transaction is open.
 */
export interface Relay extends Service {
  /** One pass. At the same time as another it waits for it. */
  runOnce(signal?: AbortSignal): Promise<PassResult>;
  /** Resolves when a pass found nothing more in this relay's lane groups. Throws UNAVAILABLE after `timeoutMs` (30 s). */
  idle(options?: { signal?: AbortSignal; timeoutMs?: number }): Promise<void>;
  /** Sends a run's parked rows again, ahead of its later ones. Answers how many there were. */
  releaseParked(p: { tenantId: number; runId: bigint }): Promise<number>;
  /** Since the start, for metrics. */
  readonly counters: Readonly<RelayCounters>;
}

export interface RelayOptions {
  readonly db: Db;
  readonly bus: EventBus;
  readonly wakeups: Wakeups;
  readonly log: Log;
  /** Names this relay among all; no two may have the same. */
  readonly owner: string;
  /** How long a relay that died keeps its lanes from others. Default 5 s. */
  readonly leaseMs?: number;
}

/** The topic of the wake-up after a commit that wrote events. */
export const OUTBOX_TOPIC = "outbox";

const LEASE_MS = 5_000;
/** Gathers what commits at about the same time: a relay that runs after every commit competes with what it follows. */
const DEBOUNCE_MS = 5;
const POLL_MS = 100;
const LAST_POLL_MS = 1_000;
const IDLE_TIMEOUT_MS = 30_000;

export function createRelay(options: RelayOptions): Relay {
  const { db, bus, wakeups, log, owner } = options;
  const leaseMs = options.leaseMs ?? LEASE_MS;
  const keeper = new LaneKeeper({ db, owner, ttlMs: leaseMs });
  const passes = createPasses({ db, bus, keeper, log });
  let last: Promise<unknown> = Promise.resolve();
  /** Set by a wake, so that the poll can look more seldom while nothing happens. */
  let woken = true;
  let pollMs = POLL_MS;
  let lookedAt = Number.NEGATIVE_INFINITY;

  function runOnce(signal: AbortSignal = new AbortController().signal): Promise<PassResult> {
    const pass = last.then(() => passes.run(signal));
    last = pass.catch(() => undefined);
    return pass;
  }

  /** A pass of the loop: while nothing wakes it and nothing was found, it looks more and more seldom. */
  async function poll(signal: AbortSignal): Promise<{ again: boolean }> {
    if (!woken && performance.now() - lookedAt < pollMs) return { again: false };
    woken = false;
    // Counts as looked at only when the pass succeeds: after a failure the loop's own rest is all the waiting there is.
    lookedAt = Number.NEGATIVE_INFINITY;
    const result = await runOnce(signal);
    lookedAt = performance.now();
    pollMs = result.tookCount > 0 ? POLL_MS : Math.min(LAST_POLL_MS, pollMs * 2);
    return { again: result.again };
  }

  const loop = createLoop({
    name: "outbox-relay",
    log,
    intervalMs: POLL_MS,
    debounceMs: DEBOUNCE_MS,
    runOnce: poll,
    wake: {
      subscribe: (listener) =>
        wakeups.subscribe(OUTBOX_TOPIC, () => {
          woken = true;
          listener();
        }),
    },
  });
  // A loop of its own, so that a slow bus does not cost the lanes.
  const keeping = createLoop({
    name: "outbox-relay-lanes",
    log,
    intervalMs: leaseMs / 3,
    runOnce: () => keeper.keep(),
  });

  async function idle(p: { signal?: AbortSignal; timeoutMs?: number } = {}): Promise<void> {
    const { timeoutMs = IDLE_TIMEOUT_MS } = p;
    const overdue = AbortSignal.timeout(timeoutMs);
    const signal = p.signal === undefined ? overdue : AbortSignal.any([p.signal, overdue]);
    let cause: unknown;
    while (!signal.aborted) {
      try {
        const { tookCount, settledCount } = await runOnce(signal);
        if (tookCount === 0) return;
        if (settledCount > 0) continue;
      } catch (error) {
        if (!(error instanceof MeshError) || error.reason !== "UNAVAILABLE") throw error;
        cause = error;
      }
      await sleep(DEBOUNCE_MS, undefined, { signal }).catch(() => undefined);
    }
    p.signal?.throwIfAborted();
    throw new MeshError("UNAVAILABLE", `The outbox was not empty after ${timeoutMs} ms.`, { cause });
  }

  return {
    name: "outbox-relay",
    counters: passes.counters,
    runOnce,
    idle,
    async releaseParked(p) {
      const count = await releaseParked(db, p);
      wakeups.notify(OUTBOX_TOPIC);
      return count;
    },
    async start() {
      woken = true;
      await keeping.start();
      await loop.start();
    },
    async stop() {
      await loop.stop();
      await keeping.stop();
      await keeper.release().catch((error: unknown) => {
        log.warn({ error }, "the lanes could not be given up; they will expire");
      });
    },
  };
}
