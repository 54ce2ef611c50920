import { performance } from "node:perf_hooks";
import type { Db } from "@runmesh/store/db";
import {
  type HeldLaneGroups,
  listLaneGroups,
  releaseLaneGroups,
  renewLaneGroups,
  takeLaneGroups,
} from "@runmesh/store/lane-groups";
import { chooseLaneGroups } from "./lane-share.ts";

export interface LaneKeeperOptions {
  readonly db: Db;
  readonly owner: string;
  /** How long a relay that died keeps its groups from others. */
  readonly ttlMs: number;
}

/**
 * Holds this relay's share of the lane groups. The database decides whether a group is still held; what is known here
 * only saves work, and is not trusted past the time until which the last renewal surely reaches.
 */
export class LaneKeeper {
  readonly #options: LaneKeeperOptions;
  readonly #fences = new Map<number, bigint>();
  #trustedUntil = Number.NEGATIVE_INFINITY;
  #keptAt = Number.NEGATIVE_INFINITY;
  #keeping: Promise<void> | undefined;
  /** Groups taken and lost since the start, for metrics. */
  readonly counters = { taken: 0, lost: 0 };

  constructor(options: LaneKeeperOptions) {
    this.#options = options;
  }

  /** The groups held as far as is known, by id. */
  held(): HeldLaneGroups {
    const trusted = performance.now() < this.#trustedUntil ? [...this.#fences].sort(([a], [b]) => a - b) : [];
    return { owner: this.#options.owner, ids: trusted.map(([id]) => id), fences: trusted.map(([, fence]) => fence) };
  }

  isDue(): boolean {
    return performance.now() - this.#keptAt >= this.#options.ttlMs / 3;
  }

  /** Renews what is held and takes what is missing to a fair share. Calls at the same time are one. */
  keep(): Promise<void> {
    this.#keeping ??= this.#keep().finally(() => {
      this.#keeping = undefined;
    });
    return this.#keeping;
  }

  /** Gives everything up at once, so that others need not wait for the expiry. */
  async release(): Promise<void> {
    await this.#keeping?.catch(() => undefined);
    const held: HeldLaneGroups = {
      owner: this.#options.owner,
      ids: [...this.#fences.keys()],
      fences: [...this.#fences.values()],
    };
    this.#fences.clear();
    this.#trustedUntil = Number.NEGATIVE_INFINITY;
    this.#keptAt = Number.NEGATIVE_INFINITY;
    if (held.ids.length > 0) await releaseLaneGroups(this.#options.db, { held });
  }

  async #keep(): Promise<void> {
    const { db, owner, ttlMs } = this.#options;
    const askedAt = performance.now();
    if (this.#fences.size > 0) {
      const held = { owner, ids: [...this.#fences.keys()], fences: [...this.#fences.values()] };
      const kept = new Set((await renewLaneGroups(db, { held, ttlMs })).map((row) => row.id));
      for (const id of held.ids) {
        if (kept.has(id)) continue;
        this.#fences.delete(id);
        this.counters.lost++;
      }
    }
    const groups = await listLaneGroups(db);
    // A group that another process of the same name holds is not ours: our fence of it is not current.
    const seen = groups.map((group) =>
      group.owner === owner && this.#fences.get(group.id) !== group.fence
        ? { ...group, owner: `${owner} (other)` }
        : group,
    );
    const chosen = chooseLaneGroups(seen, owner);
    if (chosen.length > 0) {
      const taken = await takeLaneGroups(db, {
        owner,
        ids: chosen.map(({ id }) => id),
        fences: chosen.map(({ fence }) => fence),
        ttlMs,
      });
      for (const { id, fence } of taken) this.#fences.set(id, fence);
      this.counters.taken += taken.length;
    }
    this.#trustedUntil = askedAt + ttlMs;
    this.#keptAt = askedAt;
  }
}
