import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export interface RunRow {
  id: bigint;
  definition_id: bigint;
  workflow: string;
  version: number;
  state: number;
  task_count: number;
  open_count: number;
  dead_count: number;
  skipped_count: number;
  cancelled_count: number;
  failing_count: number;
  sequence: number;
  labels: Record<string, string>;
  idempotency_key: string | null;
  created_at: Date;
  due_at: Date | null;
  started_at: Date | null;
  finished_at: Date | null;
  deadline_at: Date | null;
  failure_task_id: bigint | null;
  failure_type: string | null;
  failure_message: Buffer | null;
  parent_run_id: bigint | null;
  parent_task_id: bigint | null;
  rerun_of: bigint | null;
  /** Of a CANCELLED run: by whom, and why. */
  cancelled_by: string | null;
  cancel_comment: string | null;
}

/** What a `RunRow` is read from. */
export const RUN_COLUMNS = `run.id, run.definition_id, workflow.name AS workflow, definition.version, run.state, run.task_count,
  run.open_count, run.dead_count, run.skipped_count, run.cancelled_count, run.failing_count, run.sequence, run.labels,
  run.idempotency_key, run.created_at, run.due_at, run.started_at, run.finished_at, run.deadline_at,
  run.failure_task_id, run.failure_type, run.failure_message, run.parent_run_id, run.parent_task_id, run.rerun_of,
  run.cancelled_by, run.cancel_comment`;

export const FROM_RUN = `FROM run
  JOIN workflow ON workflow.tenant_id = run.tenant_id AND workflow.id = run.workflow_id
  JOIN definition ON definition.tenant_id = run.tenant_id AND definition.id = run.definition_id`;

export const findRun = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<RunRow>("find_run", `SELECT ${RUN_COLUMNS} ${FROM_RUN} WHERE run.tenant_id = $1 AND run.id = $2`, [
    p.tenantId,
    p.runId,
  ]);

/** Runs by their ids, in no particular order. */
export const findRuns = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<RunRow>(
    "find_runs",
    `SELECT ${RUN_COLUMNS} ${FROM_RUN} WHERE run.tenant_id = $1 AND run.id = ANY ($2::bigint[])`,
    [p.tenantId, int8Array(p.runIds)],
  );

/** Those of the runs that have not ended. */
export const listOpenRuns = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<{ id: bigint }>(
    "list_open_runs",
    `
  SELECT run.id
  FROM unnest($2::bigint[]) AS wanted (run_id)
  CROSS JOIN LATERAL (
    SELECT id FROM run WHERE tenant_id = $1 AND id = wanted.run_id AND state <= 3 OFFSET 0
  ) AS run`,
    [p.tenantId, int8Array(p.runIds)],
  );

/** Inputs of runs that have one. */
export const findInputs = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<{ run_id: bigint; input: Buffer }>(
    "find_inputs",
    `
  SELECT wanted.run_id, run.input
  FROM unnest($2::bigint[]) AS wanted (run_id)
  CROSS JOIN LATERAL (
    SELECT input FROM run WHERE tenant_id = $1 AND id = wanted.run_id AND input IS NOT NULL OFFSET 0
  ) AS run`,
    [p.tenantId, int8Array(p.runIds)],
  );

/** The definitions of runs. */
export const findRunDefinitions = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<{ run_id: bigint; definition_id: bigint }>(
    "find_run_definitions",
    `
  SELECT wanted.run_id, run.definition_id
  FROM unnest($2::bigint[]) AS wanted (run_id)
  CROSS JOIN LATERAL (
    SELECT definition_id FROM run WHERE tenant_id = $1 AND id = wanted.run_id OFFSET 0
  ) AS run`,
    [p.tenantId, int8Array(p.runIds)],
  );
