import type { Db } from "@runmesh/store/db";
import {
  type EventDefinitionRow,
  listEventDefinitions,
  listEventTenants,
  listEventWorkers,
} from "@runmesh/store/run-history";
import { LRUCache } from "lru-cache";

/** The names that an event's ids stand for. */
export interface EventNames {
  readonly tenant: string;
  readonly workflow: string;
  readonly version: number;
  /** Empty where the session is no longer known, or the event has none. */
  readonly worker: string;
  taskKey(ordinal: number): string;
}

/** Ids of one event; `sessionId` 0 where it has none. */
export interface EventIds {
  readonly tenantId: number;
  readonly definitionId: bigint;
  readonly sessionId: bigint;
}

interface DefinitionNames {
  readonly workflow: string;
  readonly version: number;
  readonly keys: readonly string[];
}

/** Weighed in task keys, so that a few large graphs do not fill the memory. */
const MAX_KEYS = 1_000_000;
const MAX_WORKERS = 10_000;
const MAX_TENANTS = 10_000;
/** A body may be some megabytes. */
const DEFINITIONS_A_READ = 16;

/** Finds the names of events. All of them are fixed once written, so what was read is kept, within limits. */
export class EventNameReader {
  readonly #db: Db;
  readonly #definitions = new LRUCache<string, DefinitionNames>({
    maxSize: MAX_KEYS,
    sizeCalculation: (names) => names.keys.length + 10,
  });
  readonly #workers = new LRUCache<string, string>({ max: MAX_WORKERS });
  readonly #tenants = new LRUCache<number, string>({ max: MAX_TENANTS });

  constructor(db: Db) {
    this.#db = db;
  }

  /** Names of each of the events, in order: `undefined` where the tenant or the definition is not there or unreadable. */
  async find(events: readonly EventIds[]): Promise<(EventNames | undefined)[]> {
    // Held apart from the caches, which may drop what this batch still needs.
    const definitions = new Map<string, DefinitionNames | undefined>();
    const workers = new Map<string, string | undefined>();
    const tenants = new Map<number, string | undefined>();
    for (const { tenantId, definitionId, sessionId } of events) {
      const definition = `${tenantId}/${definitionId}`;
      if (!definitions.has(definition)) definitions.set(definition, this.#definitions.get(definition));
      if (!tenants.has(tenantId)) tenants.set(tenantId, this.#tenants.get(tenantId));
      if (sessionId === 0n) continue;
      const worker = `${tenantId}/${sessionId}`;
      if (!workers.has(worker)) workers.set(worker, this.#workers.get(worker));
    }
    await this.#readDefinitions(definitions);
    await this.#readWorkers(workers);
    await this.#readTenants(tenants);

    return events.map(({ tenantId, definitionId, sessionId }) => {
      const tenant = tenants.get(tenantId);
      const definition = definitions.get(`${tenantId}/${definitionId}`);
      if (tenant === undefined || definition === undefined) return undefined;
      const worker = sessionId === 0n ? "" : (workers.get(`${tenantId}/${sessionId}`) ?? "");
      return nameEvent(tenant, definition, worker);
    });
  }

  async #readDefinitions(found: Map<string, DefinitionNames | undefined>): Promise<void> {
    const missing = missingOf(found).map(readPair);
    for (let first = 0; first < missing.length; first += DEFINITIONS_A_READ) {
      const part = missing.slice(first, first + DEFINITIONS_A_READ);
      const rows = await listEventDefinitions(this.#db, {
        tenantIds: part.map(([tenantId]) => tenantId),
        ids: part.map(([, id]) => id),
      });
      for (const row of rows) {
        const keys = findKeys(row);
        if (keys === undefined) continue;
        const names = { workflow: row.workflow, version: row.version, keys };
        found.set(`${row.tenant_id}/${row.id}`, names);
        this.#definitions.set(`${row.tenant_id}/${row.id}`, names);
      }
    }
  }

  async #readWorkers(found: Map<string, string | undefined>): Promise<void> {
    const missing = missingOf(found).map(readPair);
    if (missing.length === 0) return;
    const rows = await listEventWorkers(this.#db, {
      tenantIds: missing.map(([tenantId]) => tenantId),
      sessionIds: missing.map(([, id]) => id),
    });
    for (const row of rows) {
      found.set(`${row.tenant_id}/${row.id}`, row.name);
      this.#workers.set(`${row.tenant_id}/${row.id}`, row.name);
    }
  }

  async #readTenants(found: Map<number, string | undefined>): Promise<void> {
    const missing = missingOf(found);
    if (missing.length === 0) return;
    for (const row of await listEventTenants(this.#db, { ids: missing })) {
      found.set(row.id, row.name);
      this.#tenants.set(row.id, row.name);
    }
  }
}

function nameEvent(tenant: string, definition: DefinitionNames, worker: string): EventNames {
  return {
    tenant,
    workflow: definition.workflow,
    version: definition.version,
    worker,
    taskKey(ordinal) {
      const key = definition.keys[ordinal];
      if (key === undefined) throw new Error(`the definition has no task ${ordinal}`);
      return key;
    },
  };
}

/** None where the body cannot be read: then events of that definition are poison, and those of others go on. */
function findKeys(row: EventDefinitionRow): string[] | undefined {
  try {
    const definition = JSON.parse(row.body.toString("utf8")) as { tasks: readonly { key: string }[] };
    return definition.tasks.map((task) => task.key);
  } catch {
    return undefined;
  }
}

function missingOf<Key>(found: ReadonlyMap<Key, unknown>): Key[] {
  return [...found].filter(([, value]) => value === undefined).map(([key]) => key);
}

function readPair(key: string): [tenantId: number, id: bigint] {
  const slash = key.indexOf("/");
  return [Number(key.slice(0, slash)), BigInt(key.slice(slash + 1))];
}
