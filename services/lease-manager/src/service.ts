import type { ConnectRouter } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { Log } from "@runmesh/platform/log";
import { composeServices, type Service } from "@runmesh/platform/service";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { ClaimTurns } from "./claim-turns.ts";
import { createLeaseService } from "./lease-service.ts";
import { LinkWatch } from "./link-watch.ts";
import { createReaper } from "./reaper.ts";
import { Reports } from "./reports.ts";
import { RouteTable } from "./route-table.ts";
import { Sessions } from "./sessions.ts";
import { Waiters } from "./waiters.ts";

export interface LeaseManagerOptions {
  /** For claims and completions. */
  readonly hot: Db;
  /** For renewals: they never wait behind the work. */
  readonly renewal: Db;
  readonly db: Db;
  /** For what is looked up within transactions on the others, on connections that no transaction holds. */
  readonly lookups: Db;
  readonly wakeups: Wakeups;
  readonly log: Log;
}

export interface LeaseManager extends Service {
  routes(router: ConnectRouter): void;
}

/** Worker sessions, claims, renewals, completions and expiry. */
export function createLeaseManager({ hot, renewal, db, lookups, wakeups, log }: LeaseManagerOptions): LeaseManager {
  const definitions = new DefinitionCache(lookups, () => wakeups.notify("routes"));
  const sessions = new Sessions(db);
  const routes = new RouteTable(db, wakeups);
  const waiters = new Waiters(wakeups);
  const reports = new Reports({ hot, db, definitions, wakeups, log });
  const links = new LinkWatch({ db, definitions, sessions, wakeups, log });
  const reaper = composeServices("lease-manager", [createReaper({ db, definitions, sessions, wakeups, log })]);
  let draining = new AbortController();
  const deps = {
    hot,
    renewal,
    db,
    wakeups,
    definitions,
    sessions,
    routes,
    waiters,
    turns: new ClaimTurns(),
    reports,
    links,
    get draining() {
      return draining.signal;
    },
  };
  return {
    name: "lease-manager",
    async start() {
      if (draining.signal.aborted) draining = new AbortController();
      await reaper.start();
    },
    async stop() {
      draining.abort();
      links.stop();
      await reaper.stop();
    },
    routes(router) {
      router.service(LeaseService, createLeaseService(deps));
    },
  };
}
