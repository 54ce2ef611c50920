import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listRoutes, type Route } from "@runmesh/store/routes";

/** What a worker can run. */
export interface Abilities {
  readonly handlers: ReadonlySet<string>;
  readonly queues: ReadonlySet<string>;
  readonly capabilities: ReadonlySet<string>;
}

const PAGE = 1_000;
/** Routes that other processes interned are seen within this time. */
const REFRESH_MS = 1_000;

interface TenantRoutes {
  readonly routes: Route[];
  readAt: number;
  /** There are new ones since the last read began. */
  isStale: boolean;
  reading: Promise<void> | undefined;
}

/** The routes of each tenant, kept in memory: a claim computes what its session can run without asking the database. */
export class RouteTable {
  readonly #db: Db;
  readonly #tenants = new Map<number, TenantRoutes>();

  constructor(db: Db, wakeups: Wakeups) {
    this.#db = db;
    wakeups.subscribe("routes", () => {
      for (const tenant of this.#tenants.values()) tenant.isStale = true;
    });
  }

  /** Every route of the tenant, by id. It only grows, so a length tells a caller whether it saw all of it. */
  async list(tenantId: number): Promise<readonly Route[]> {
    let tenant = this.#tenants.get(tenantId);
    if (tenant === undefined) {
      tenant = { routes: [], readAt: 0, isStale: true, reading: undefined };
      this.#tenants.set(tenantId, tenant);
    }
    // A read that began before the hint may have missed what it is about.
    while (tenant.isStale || performance.now() - tenant.readAt > REFRESH_MS) {
      tenant.reading ??= this.#read(tenantId, tenant);
      await tenant.reading;
    }
    return tenant.routes;
  }

  async #read(tenantId: number, tenant: TenantRoutes): Promise<void> {
    try {
      const readAt = performance.now();
      tenant.isStale = false;
      for (;;) {
        const afterId = tenant.routes.at(-1)?.id ?? 0;
        const page = await listRoutes(this.#db, { tenantId, afterId, limit: PAGE });
        tenant.routes.push(...page);
        if (page.length < PAGE) break;
      }
      tenant.readAt = readAt;
    } catch (error) {
      tenant.isStale = true;
      throw error;
    } finally {
      tenant.reading = undefined;
    }
  }
}

export function canRun(abilities: Abilities, route: Route): boolean {
  return (
    abilities.handlers.has(route.handler) &&
    abilities.queues.has(route.queue) &&
    (route.requires === "" || route.requires.split(" ").every((need) => abilities.capabilities.has(need)))
  );
}
