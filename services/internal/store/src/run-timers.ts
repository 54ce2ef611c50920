import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** What a timer of a run is for. CHILDREN: what it left behind follows it (stray-children.ts). */
export const TIMER_KINDS = { START: 1, DEADLINE: 2, CHILDREN: 3 } as const;

export interface DueTimer {
  tenant_id: number;
  run_id: bigint;
  kind: number;
  /** When it was due, exactly, by which it is told from one that was set since. */
  due: string;
}

/** Timers that are due, of every tenant, but of some runs. They are deleted by the move that they cause, under the run's lock. */
export const listDueTimers = (db: Db, p: { limit: number; exceptRunIds: readonly bigint[] }) =>
  db.rows<DueTimer>(
    "list_due_timers",
    `
  SELECT tenant_id, run_id, kind, due_at::text AS due FROM run_timer
  WHERE due_at <= clock_timestamp() AND run_id <> ALL ($2::bigint[])
  ORDER BY due_at
  LIMIT $1`,
    [p.limit, int8Array(p.exceptRunIds)],
  );

export const deleteRunTimer = (db: Db, p: { tenantId: number; runId: bigint; kind: number }) =>
  db.rows(
    "delete_run_timer",
    `
  DELETE FROM run_timer
  WHERE tenant_id = $1 AND run_id = $2 AND kind = $3`,
    [p.tenantId, p.runId, p.kind],
  );

/** Those of a run that has not ended. */
export const deleteRunTimers = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows(
    "delete_run_timers",
    `
  DELETE FROM run_timer
  WHERE tenant_id = $1 AND run_id = $2 AND kind <> ${TIMER_KINDS.CHILDREN}`,
    [p.tenantId, p.runId],
  );
