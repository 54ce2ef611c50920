import { completeStatement } from "./complete-text.ts";
import type { Db } from "./db.ts";
import { packCompletions } from "./pack-completions.ts";

/**
 * The hot end of a task: success. Invariants:
 *   1. An item counts only if (tenant, session, task, fence) is current, its lease unexpired by the database's clock,
 *      and its run RUNNING (G1). A paused run's completions go through settle-run.ts, and so does one that may end a
 *      child run: its parent is told in the same transaction.
 *   2. The run's row is locked first, in ascending order, once for each distinct run; the lease is ended under it.
 *   3. Attempt, counters, dependents, sequence and events commit together (G2), and a run's sequence has no gap (G3).
 *   4. Run locks are taken with SKIP LOCKED where `mayWait` is false: one slow cancel holds up nobody else.
 *   5. No two CTEs are joined and rows are reached by = ANY(array), so that the plan cannot flip on small tables.
 * Most batches have one item of each run: these have a text of their own, which counts nothing.
 */
export interface Completion {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly sessionId: bigint;
  /** JSON text; `undefined` for null. */
  readonly output: Buffer | undefined;
  /** Tasks that wait for this one: their ids, and how they are routed once nothing else holds them up. */
  readonly dependents: readonly Dependent[];
}

export interface Dependent {
  readonly taskId: bigint;
  readonly routeId: number;
  readonly rank: number;
}

export interface CompletionOutcome {
  /** Tasks whose completion counts. */
  readonly accepted: ReadonlySet<bigint>;
  readonly endedRuns: readonly bigint[];
  /** Routes that have new ready tasks. */
  readonly wokenRoutes: readonly number[];
}

/** Completes distinct tasks of one tenant, in ascending order of their ids. None of them has to do with limits. */
export async function completeLeases(
  db: Db,
  p: { tenantId: number; completions: readonly Completion[]; mayWait: boolean },
): Promise<CompletionOutcome> {
  const { params, dependents, oneEach } = packCompletions(p.tenantId, p.completions);
  const hasDependents = dependents.length > 0;
  const { name, text } = completeStatement({ hasDependents, oneEach, mayWait: p.mayWait });
  const row = await db.one<OutcomeRow>(name, text, params);
  return readOutcome(row);
}

export interface OutcomeRow {
  accepted: string | null;
  ended_runs: string | null;
  woken_routes: string | null;
}

export const readOutcome = (row: OutcomeRow): CompletionOutcome => ({
  accepted: new Set(readIds(row.accepted)),
  endedRuns: readIds(row.ended_runs),
  wokenRoutes: readIds(row.woken_routes).map(Number),
});

export const readIds = (array: string | null): bigint[] =>
  array === null || array === "{}" ? [] : array.slice(1, -1).split(",").map(BigInt);
