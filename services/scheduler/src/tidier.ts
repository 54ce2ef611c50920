import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { forgetAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { listHalfResumed } from "@runmesh/store/held";
import { releasePaused } from "@runmesh/store/pause-run";
import { forgetRequests } from "@runmesh/store/requests";

const RUNS = 100;
const REQUESTS = 1_000;

/** Goes on with resumes that a crash cut off, and forgets request ids and audit entries that are old enough. */
export function createTidier(deps: { db: Db; definitions: DefinitionCache; wakeups: Wakeups; log: Log }): Loop {
  const { db, wakeups, log } = deps;
  return createLoop({
    name: "tidier",
    intervalMs: 2_000,
    log,
    async runOnce(signal) {
      const runs = await listHalfResumed(db, { limit: RUNS });
      for (const { tenant_id: tenantId, run_id: runId } of runs) {
        if (signal.aborted) return { again: false };
        try {
          for (const route of await releasePaused(deps, { tenantId, runId })) wakeups.notify(`ready:${route}`);
        } catch (error) {
          log.error({ tenantId, runId, error }, "a resume could not be gone on with; it will be tried again");
        }
      }
      const forgotten = await forgetRequests(db, { limit: REQUESTS });
      const audited = await forgetAudit(db, { limit: REQUESTS });
      return { again: runs.length === RUNS || forgotten === REQUESTS || audited === REQUESTS };
    },
  });
}
