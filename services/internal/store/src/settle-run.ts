import { type AttemptOutcome, RUN_STATES } from "@runmesh/domain/states";
import { listLostInARow } from "./attempts.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { LeaseEnds } from "./lease-ends.ts";
import type { LeaseRow } from "./leases.ts";
import { lockRun } from "./lock-run.ts";
import { SettledRun } from "./settled-run.ts";

/**
 * Ends leases otherwise than by a plain success, under their run's lock. Invariants:
 *   1. The run is locked first, then the leases, then tasks: the lock order of the design.
 *   2. What a lease's end decides (retry, death, what follows in the graph) is decided by the domain from rows read
 *      under the run's lock, and commits with its attempt and events (G2); sequences have no gap (G3).
 *   3. A lease that never started burns nothing: it goes back to ready, ahead of its priority (G7). From the fourth of
 *      these losses in a row it counts as one after the start, so that a task that kills its worker at once ends too.
 *   4. Counters on the run's row change by what was written in this transaction, and by nothing else (G8).
 */
export interface EndedLease {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly outcome: AttemptOutcome;
  readonly output?: Buffer | undefined;
  readonly error?: LeaseError | undefined;
  readonly retryAfterMs?: number | undefined;
}

export interface LeaseError {
  readonly type: string;
  readonly message: Buffer;
  readonly retryable: boolean;
  readonly details: Buffer | null;
}

export interface SettleDeps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly random: () => number;
}

export interface LeaseLost {
  readonly sessionId: bigint;
  readonly taskId: bigint;
  readonly fence: bigint;
}

export type SettleOutcome =
  | { readonly kind: "busy" }
  | { readonly kind: "inactive" }
  | {
      readonly kind: "settled";
      /** Tasks whose lease was ended as asked; the others were not held any more. */
      readonly accepted: ReadonlySet<bigint>;
      readonly wokenRoutes: ReadonlySet<number>;
      /** Leases of other tasks that this ended. */
      readonly lost: readonly LeaseLost[];
      readonly isEnded: boolean;
    };

export interface SettleRun {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly ended: readonly EndedLease[];
  /** Locks the leases that may still be ended so: who holds them, and by whose word, differs. */
  readonly lockLeases: (tx: Db) => Promise<LeaseRow[]>;
  /** Passes over a run that another holds. */
  readonly skipLocked?: boolean;
}

export async function settleRun(deps: SettleDeps, p: SettleRun): Promise<SettleOutcome> {
  return deps.db.transaction(async (tx) => {
    const { tenantId, runId } = p;
    const run = await lockRun(tx, { tenantId, runId, skipLocked: p.skipLocked ?? false });
    if (run === undefined) return { kind: p.skipLocked ? "busy" : "inactive" };
    if (run.state !== RUN_STATES.RUNNING && run.state !== RUN_STATES.PAUSED) return { kind: "inactive" };
    const loaded = await deps.definitions.get(tenantId, run.definition_id);
    const leases = await p.lockLeases(tx);
    if (leases.length === 0) {
      return { kind: "settled", accepted: new Set(), wokenRoutes: new Set(), lost: [], isEnded: false };
    }
    const ends = new LeaseEnds(run.sequence, loaded, deps.random);
    const ended = new Map(p.ended.map((end) => [end.taskId, end]));
    const silent = await findSilentKillers(tx, p, leases);
    for (const lease of leases) ends.end(lease, ended.get(lease.task_id)!, silent.has(lease.task_id));
    return new SettledRun(tx, deps.definitions, { tenantId, run, loaded, ends }).write(leases);
  });
}

/** Losses in a row before a start was told that burn nothing. */
const SILENT_LOSSES = 3;

/** A task that ends its process at once is lost before anyone hears that it started: so often in a row, and it counts. */
async function findSilentKillers(tx: Db, p: SettleRun, leases: readonly LeaseRow[]): Promise<ReadonlySet<bigint>> {
  const { tenantId, runId } = p;
  const lost = new Set(p.ended.filter((end) => end.outcome === "LOST").map((end) => end.taskId));
  const taskIds = leases
    .filter((lease) => lost.has(lease.task_id) && lease.started_at === null && lease.attempt > SILENT_LOSSES)
    .map((lease) => lease.task_id);
  if (taskIds.length === 0) return new Set();
  const rows = await listLostInARow(tx, { tenantId, runId, taskIds, count: SILENT_LOSSES });
  return new Set(rows.map((row) => row.task_id));
}
