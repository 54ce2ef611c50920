import { randomUUID } from "node:crypto";
import { DEFAULT_KEEP_MS, decidePartition } from "@runmesh/domain/retention";
import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Db } from "@runmesh/store/db";
import { type Duty, holdDuty, leaveDuty } from "@runmesh/store/duties";
import { dropPartition, emptyRuns, listSlots, type Slot } from "@runmesh/store/partitions";
import {
  forgetRemovedRun,
  listRemovedRuns,
  readPartitionFacts,
  removeOldRuns,
  removeOldSessions,
  removeOldStartKeys,
  removeRowsOfRun,
} from "@runmesh/store/retention";
import { removeUnusedDefinitions } from "@runmesh/store/unused-definitions";

export interface RetentionOptions {
  readonly db: Db;
  /** Ended runs of tenants without a time of their own are kept so long. Default 30 days. */
  readonly keepMs?: number | undefined;
  /** Rows that one statement removes or looks at, about. Default 1,000. */
  readonly batch?: number;
}

export interface Removed {
  /** False where another process has the duty. */
  readonly onDuty: boolean;
  readonly runs: number;
  readonly rows: number;
  readonly keys: number;
  readonly sessions: number;
  /** Inline definitions that no run has any more. */
  readonly definitions: number;
  /** Ranges of run ids that were dropped whole. */
  readonly ranges: number;
}

const DUTY = "retention";
/** Longer than the longest statement may take. */
const DUTY_MS = 120_000;
const BATCH = 1_000;
const NIL = "00000000-0000-0000-0000-000000000000";

/**
 * Removes runs that ended long ago, and what hangs on them. Invariants:
 *   1. Nothing of an active run is touched: a run's row goes first, under a condition on its own state, and only what
 *      has no run any more is removed after it.
 *   2. What is cut off goes on: removed runs are noted in the transaction that removes them, and the tables of a range
 *      that is being dropped are found by their names.
 *   3. One process does it at a time, and each removing statement of rows asks for the duty's fence.
 *   4. Every statement is bounded; a range that can be dropped whole within a day is not swept.
 */
export class Retention {
  readonly #db: Db;
  readonly #keepMs: number;
  readonly #batch: number;
  readonly #owner = randomUUID();
  /** Where the walk over the start keys stands. */
  #key = { afterTenant: 0, afterWorkflow: 0, afterDigest: NIL };

  constructor({ db, keepMs = DEFAULT_KEEP_MS, batch = BATCH }: RetentionOptions) {
    this.#db = db;
    this.#keepMs = keepMs;
    this.#batch = batch;
  }

  async runOnce(signal: AbortSignal): Promise<Removed> {
    const duty = await this.#hold();
    const removed = { onDuty: duty !== undefined, runs: 0, rows: 0, keys: 0, sessions: 0, definitions: 0, ranges: 0 };
    if (duty === undefined) return removed;
    try {
      removed.rows += await this.#removeRows(signal);
      const { whole, swept } = await this.#judgeRanges();
      for (const slot of swept) removed.runs += await this.#sweep(slot, signal);
      removed.rows += await this.#removeRows(signal);
      // Last, since it may wait for a long transaction of somebody else's and then fail.
      removed.keys += await this.#removeKeys(signal);
      removed.sessions += await removeOldSessions(this.#db, { duty, limit: this.#batch, keepMs: this.#keepMs });
      removed.definitions += await this.#removeDefinitions(signal);
      for (const slot of whole) if (await this.#drop(slot, signal)) removed.ranges++;
      return removed;
    } finally {
      await leaveDuty(this.#db, duty);
    }
  }

  #hold(): Promise<Duty | undefined> {
    return holdDuty(this.#db, { name: DUTY, owner: this.#owner, ttlMs: DUTY_MS });
  }

  async #facts(db: Db, { low, high }: Slot) {
    const facts = await readPartitionFacts(db, { low, high, keepMs: this.#keepMs });
    return { ...facts, isSettled: facts.is_settled };
  }

  /** Ids rise with time, so the first range that holds nothing but young runs is the last one looked at. */
  async #judgeRanges(): Promise<{ whole: Slot[]; swept: Slot[] }> {
    const [whole, swept]: [Slot[], Slot[]] = [[], []];
    for (const slot of await listSlots(this.#db)) {
      const facts = await this.#facts(this.#db, slot);
      if (facts.is_young) break;
      const fate = decidePartition(facts);
      if (fate === "drop") whole.push(slot);
      if (fate === "sweep") swept.push(slot);
    }
    return { whole, swept };
  }

  async #sweep({ low, high }: Slot, signal: AbortSignal): Promise<number> {
    let removed = 0;
    let after = { afterTenant: 0, afterId: 0n };
    while (!signal.aborted) {
      const duty = await this.#hold();
      if (duty === undefined) break;
      const limit = this.#batch;
      const swept = await removeOldRuns(this.#db, { duty, low, high, ...after, limit, keepMs: this.#keepMs });
      removed += swept.removed;
      if (swept.looked < limit || swept.last_tenant === null || swept.last_id === null) break;
      after = { afterTenant: swept.last_tenant, afterId: swept.last_id };
    }
    return removed;
  }

  async #removeRows(signal: AbortSignal): Promise<number> {
    let rows = 0;
    while (!signal.aborted) {
      const runs = await listRemovedRuns(this.#db, { limit: this.#batch });
      for (const { tenant_id: tenantId, run_id: runId } of runs) {
        for (let left = true; left && !signal.aborted; ) {
          const removed = await removeRowsOfRun(this.#db, { tenantId, runId, limit: this.#batch });
          rows += removed;
          left = removed > 0;
        }
        if (signal.aborted) return rows;
        await forgetRemovedRun(this.#db, { tenantId, runId });
      }
      if (runs.length < this.#batch || (await this.#hold()) === undefined) break;
    }
    return rows;
  }

  /** Walks on over the keys, to their end. */
  async #removeKeys(signal: AbortSignal): Promise<number> {
    let keys = 0;
    while (!signal.aborted) {
      const duty = await this.#hold();
      if (duty === undefined) break;
      const swept = await removeOldStartKeys(this.#db, { duty, ...this.#key, limit: this.#batch });
      keys += swept.removed;
      const { looked, last_tenant: afterTenant, last_workflow: afterWorkflow, last_digest: afterDigest } = swept;
      if (looked < this.#batch || afterTenant === null || afterWorkflow === null || afterDigest === null) {
        this.#key = { afterTenant: 0, afterWorkflow: 0, afterDigest: NIL };
        break;
      }
      this.#key = { afterTenant, afterWorkflow, afterDigest };
    }
    return keys;
  }

  /** What is looked at and stays counts as used: so each is looked at once. */
  async #removeDefinitions(signal: AbortSignal): Promise<number> {
    let definitions = 0;
    while (!signal.aborted) {
      const duty = await this.#hold();
      if (duty === undefined) break;
      const swept = await removeUnusedDefinitions(this.#db, { duty, limit: this.#batch, keepMs: this.#keepMs });
      definitions += swept.removed;
      if (swept.looked < this.#batch) break;
    }
    return definitions;
  }

  async #drop(slot: Slot, signal: AbortSignal): Promise<boolean> {
    if (signal.aborted || (await this.#hold()) === undefined) return false;
    const isEmpty = await emptyRuns(
      this.#db,
      slot,
      async (tx) => decidePartition(await this.#facts(tx, slot)) === "drop",
    );
    if (!isEmpty) return false;
    for (const table of slot.tables) {
      if (signal.aborted || (await this.#hold()) === undefined) return false;
      await dropPartition(this.#db, table);
    }
    return true;
  }
}

const INTERVAL_MS = 600_000;

/** Removes what is past its time, every ten minutes. */
export function createRetention(options: RetentionOptions & { readonly log: Log }): Loop {
  const { log } = options;
  const retention = new Retention(options);
  return createLoop({
    name: "retention",
    intervalMs: INTERVAL_MS,
    log,
    async runOnce(signal) {
      const removed = await retention.runOnce(signal);
      if (Object.values(removed).some((count) => typeof count === "number" && count > 0)) {
        log.info({ removed }, "removed what is past its time");
      }
    },
  });
}
