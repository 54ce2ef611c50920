import type { Db } from "@runmesh/store/db";
import { findQuota } from "@runmesh/store/tenant-quotas";
import { LRUCache } from "lru-cache";

/** Rates of a tenant; undefined means no limit. */
export interface Rates {
  readonly requestsPerSecond: number | undefined;
  readonly startsPerSecond: number | undefined;
}

/** A quota that is changed takes hold within this time. */
const CACHE_MS = 4_000;
const MAX_CACHED = 10_000;

/** What each tenant may ask for: its own quota, else the mesh's defaults. */
export class Quotas {
  readonly #db: Db;
  readonly #defaults: Rates;
  readonly #known = new LRUCache<number, Rates>({ max: MAX_CACHED, ttl: CACHE_MS });
  readonly #asked = new Map<number, Promise<Rates>>();

  constructor(db: Db, defaults: Rates) {
    this.#db = db;
    this.#defaults = defaults;
  }

  find(tenantId: number): Rates | undefined {
    return this.#known.get(tenantId);
  }

  get(tenantId: number): Promise<Rates> {
    let asked = this.#asked.get(tenantId);
    if (asked === undefined) {
      asked = this.#ask(tenantId).finally(() => this.#asked.delete(tenantId));
      this.#asked.set(tenantId, asked);
    }
    return asked;
  }

  async #ask(tenantId: number): Promise<Rates> {
    const row = await findQuota(this.#db, { tenantId });
    const rates = {
      requestsPerSecond: row?.requests_per_second ?? this.#defaults.requestsPerSecond,
      startsPerSecond: row?.starts_per_second ?? this.#defaults.startsPerSecond,
    };
    this.#known.set(tenantId, rates);
    return rates;
  }
}
