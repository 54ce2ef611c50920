import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import { type Wakeups, wakeOn } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { promoteScheduled } from "@runmesh/store/places";

const BATCH = 1_000;

/** Moves tasks whose time has come from scheduled to ready, by the database's clock. */
export function createPromoter(deps: { db: Db; wakeups: Wakeups; log: Log }): Loop {
  return createLoop({
    name: "promoter",
    // Retries are due to the second; a finer wait would buy nothing that the jitter does not take away.
    intervalMs: 100,
    wake: wakeOn(deps.wakeups, "scheduled"),
    log: deps.log,
    async runOnce() {
      const promoted = await promoteScheduled(deps.db, { limit: BATCH });
      for (const route of new Set(promoted.map((task) => task.route_id))) deps.wakeups.notify(`ready:${route}`);
      return { again: promoted.length === BATCH };
    },
  });
}
