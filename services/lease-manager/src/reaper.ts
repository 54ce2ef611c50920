import { runIdOf } from "@runmesh/domain/ids";
import { MESH_ERROR_TYPES } from "@runmesh/domain/retry";
import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { type DueLease, extendLiveLeases, listDueLeases, lookForOutage } from "@runmesh/store/leases";
import { lockDueLeases } from "@runmesh/store/lock-leases";
import { closeStaleSessions } from "@runmesh/store/sessions";
import { type EndedLease, type LeaseError, settleRun } from "@runmesh/store/settle-run";
import { hintSettled } from "./reports.ts";
import type { Sessions } from "./sessions.ts";

const BATCH = 500;
const INTERVAL_MS = 500;
/** A look at the database that took so long was an outage, though it did not fail. */
const SLOW_LOOK_MS = 1_000;
/** Longer than any lease. */
const UNKNOWN_OUTAGE_MS = 2 ** 31 - 1;

const TIMEOUTS = {
  start_to_close: timeout(
    MESH_ERROR_TYPES.START_TO_CLOSE,
    "The handler took longer than its time-out (`timeout`, start_to_close).",
  ),
  heartbeat: timeout(
    MESH_ERROR_TYPES.HEARTBEAT,
    "The handler told no progress for longer than its `heartbeatTimeout` (heartbeat).",
  ),
};

function timeout(type: string, message: string): LeaseError {
  return { type, message: Buffer.from(message), retryable: true, details: null };
}

export interface ReaperOptions {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly sessions: Sessions;
  readonly wakeups: Wakeups;
  readonly log: Log;
}

/** Ends leases whose time is over, by the database's clock. A lease is ready again within its length + 1 s (G7). */
export function createReaper(options: ReaperOptions): Loop {
  const { db, wakeups, sessions } = options;
  let seenAt: { local: number; database: Date } | undefined;
  let failed = false;

  /**
   * After an outage, leases that were live get time for one renewal before expiry goes on (G4). A database that can
   * only be read is out of reach as well: nobody can renew.
   */
  async function forgiveOutage(): Promise<void> {
    const askedAt = performance.now();
    const look = await lookForOutage(db).catch((error: unknown) => {
      failed = true;
      throw error;
    });
    const local = performance.now();
    if (seenAt === undefined) {
      // Leases that nobody ended for so long: no reaper was there when they ran out, so their workers had none to ask.
      const aliveAt = look.overdue_since && new Date(look.overdue_since.getTime() - 1);
      if (aliveAt !== null) await extendLiveLeases(db, { aliveAt, outageMs: UNKNOWN_OUTAGE_MS });
    } else if (failed || local - askedAt > SLOW_LOOK_MS) {
      await extendLiveLeases(db, { aliveAt: seenAt.database, outageMs: Math.ceil(local - seenAt.local) });
    }
    failed = false;
    seenAt = { local, database: look.now };
  }

  async function end(tenantId: number, runId: bigint, due: readonly DueLease[]): Promise<void> {
    const ended: EndedLease[] = due.map((lease) => ({
      taskId: lease.task_id,
      fence: lease.fence,
      outcome: lease.outcome,
      ...(lease.passed !== null && { error: TIMEOUTS[lease.passed] }),
    }));
    const outcome = await settleRun(
      { db, definitions: options.definitions, random: Math.random },
      { tenantId, runId, ended, skipLocked: true, lockLeases: (tx) => lockDueLeases(tx, { tenantId, leases: ended }) },
    );
    if (outcome.kind !== "settled") return;
    hintSettled(wakeups, runId, outcome);
    for (const sessionId of new Set(due.map((lease) => lease.session_id))) wakeups.notify(`lost:${sessionId}`);
  }

  return createLoop({
    name: "reaper",
    intervalMs: INTERVAL_MS,
    log: options.log,
    async runOnce(signal) {
      await forgiveOutage();
      const due = await listDueLeases(db, { limit: BATCH });
      const runs = Map.groupBy(due, (lease) => `${lease.tenant_id}/${runIdOf(lease.task_id)}`);
      for (const leases of runs.values()) {
        if (signal.aborted) return { again: false };
        await end(leases[0]!.tenant_id, runIdOf(leases[0]!.task_id), leases);
      }
      for (const closed of await closeStaleSessions(db, { limit: BATCH })) sessions.forget(closed.id);
      return { again: due.length === BATCH };
    },
  });
}
