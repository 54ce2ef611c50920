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

const COLUMNS = `run.id, run.definition_id, workflow.name AS workflow, definition.version, run.state, run.task_count,
  run.open_count, run.dead_count, run.skipped_count, run.cancelled_count, run.failing_count, run.sequence, run.labels,
  run.idempotency_key, run.created_at, run.due_at, run.started_at, run.finished_at, run.deadline_at,
  run.failure_task_id, run.failure_type, run.failure_message, run.parent_run_id, run.parent_task_id, run.rerun_of,
  run.cancelled_by, run.cancel_comment`;

const FROM = `FROM run
  JOIN workflow ON workflow.tenant_id = run.tenant_id AND workflow.id = run.workflow_id
  JOIN definition ON definition.tenant_id = run.tenant_id AND definition.id = run.definition_id`;

export const findRun = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<RunRow>("find_run", `SELECT ${COLUMNS} ${FROM} WHERE run.tenant_id = $1 AND run.id = $2`, [
    p.tenantId,
    p.runId,
  ]);

/** Runs by their ids, in no particular order. */
export const findRuns = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<RunRow>("find_runs", `SELECT ${COLUMNS} ${FROM} WHERE run.tenant_id = $1 AND run.id = ANY ($2::bigint[])`, [
    p.tenantId,
    int8Array(p.runIds),
  ]);

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

export interface RunFilter {
  readonly states: readonly number[];
  readonly workflow: string;
  readonly version: number;
  readonly createdAfter: Date | undefined;
  readonly createdBefore: Date | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly parentRunId: bigint;
  readonly idempotencyKey: string;
}

export interface ListRuns {
  readonly tenantId: number;
  readonly filter: RunFilter;
  /** The last id of the page before. */
  readonly after: bigint | undefined;
  readonly limit: number;
  readonly newestFirst: boolean;
}

/** Runs by id, which rises with their creation, up to `end`. */
export function listRuns(db: Db, p: ListRuns & { end?: bigint | undefined }): Promise<RunRow[]> {
  const { filter } = p;
  const params: unknown[] = [p.tenantId, p.limit];
  const conditions = ["run.tenant_id = $1"];
  const add = (condition: (place: string) => string, value: unknown) => {
    params.push(value);
    conditions.push(condition(`$${params.length}`));
  };
  if (filter.states.length > 0) add((at) => `run.state = ANY (${at}::smallint[])`, filter.states);
  // The index by workflow has this predicate.
  if (filter.workflow !== "") add((at) => `run.workflow_id > 0 AND workflow.name = ${at}`, filter.workflow);
  if (filter.version > 0) add((at) => `definition.version = ${at}::bigint`, filter.version);
  if (filter.createdAfter !== undefined) add((at) => `run.created_at > ${at}`, filter.createdAfter);
  if (filter.createdBefore !== undefined) add((at) => `run.created_at < ${at}`, filter.createdBefore);
  if (Object.keys(filter.labels).length > 0) add((at) => `run.labels @> ${at}::jsonb`, JSON.stringify(filter.labels));
  if (filter.parentRunId > 0n) add((at) => `run.parent_run_id = ${at}`, filter.parentRunId);
  if (filter.idempotencyKey !== "") add((at) => `run.idempotency_key = ${at}`, filter.idempotencyKey);
  if (p.after !== undefined) add((at) => `run.id ${p.newestFirst ? "<" : ">"} ${at}`, p.after);
  if (p.end !== undefined) add((at) => `run.id ${p.newestFirst ? ">=" : "<="} ${at}`, p.end);
  const text = `SELECT ${COLUMNS} ${FROM}
  WHERE ${conditions.join("\n    AND ")}
  ORDER BY run.id ${p.newestFirst ? "DESC" : "ASC"}
  LIMIT $2`;
  return db.rows<RunRow>("", text, params);
}

export interface LockedRun {
  id: bigint;
  definition_id: bigint;
  state: number;
  open_count: number;
  failing_count: number;
  sequence: number;
  /** Its start time has come. */
  is_due: boolean;
  /** The task whose handler started it. */
  parent_task_id: bigint | null;
}

const LOCKED = `id, definition_id, state, open_count, failing_count, sequence, parent_task_id,
    due_at IS NULL OR due_at <= clock_timestamp() AS is_due`;

/** Locks a run for a move. `skipLocked` answers nothing where another holds it. */
export const lockRun = (db: Db, p: { tenantId: number; runId: bigint; skipLocked?: boolean }) =>
  db.find<LockedRun>(
    p.skipLocked ? "lock_run_skip" : "lock_run",
    `
  SELECT ${LOCKED}
  FROM run
  WHERE tenant_id = $1 AND id = $2
  FOR NO KEY UPDATE${p.skipLocked ? " SKIP LOCKED" : ""}`,
    [p.tenantId, p.runId],
  );

/** Locks runs, in ascending order of their ids as they are given. */
export const lockRuns = (db: Db, p: { tenantId: number; runIds: readonly bigint[] }) =>
  db.rows<LockedRun>(
    "lock_runs",
    `
  SELECT run.id, run.definition_id, run.state, run.open_count, run.failing_count, run.sequence, run.parent_task_id,
    run.is_due
  FROM unnest($2::bigint[]) AS named (id)
  CROSS JOIN LATERAL (
    SELECT ${LOCKED}
    FROM run
    WHERE tenant_id = $1 AND id = named.id
    FOR NO KEY UPDATE
    OFFSET 0
  ) AS run`,
    [p.tenantId, int8Array(p.runIds)],
  );

/** Says whose handler started a run that was just inserted. */
export const setParent = (db: Db, p: { tenantId: number; runId: bigint; parentTaskId: bigint; detached: boolean }) =>
  db.rows(
    "set_parent",
    `
  UPDATE run SET parent_run_id = $3::bigint >> 20, parent_task_id = $3::bigint, detached = $4
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId, p.parentTaskId, p.detached],
  );

/** What a move changes on the run's row. Counters are added to; `failure` is kept once it is set. */
export interface RunChange {
  readonly state: number;
  readonly sequence: number;
  readonly ended: number;
  readonly dead: number;
  readonly skipped: number;
  readonly cancelled: number;
  readonly failing: number;
  readonly isTerminal: boolean;
  readonly failure: { taskId: bigint; type: string; message: Buffer } | undefined;
}

export const changeRun = (db: Db, p: { tenantId: number; runId: bigint } & RunChange) =>
  db.one<{ finished_at: Date | null }>(
    "change_run",
    `
  UPDATE run
  SET state = $3::smallint, sequence = $4, open_count = open_count - $5, dead_count = dead_count + $6,
    skipped_count = skipped_count + $7, cancelled_count = cancelled_count + $8, failing_count = failing_count + $9,
    finished_at = CASE WHEN $10 THEN clock_timestamp() END,
    started_at = CASE WHEN $3::smallint = 2 THEN coalesce(started_at, clock_timestamp()) ELSE started_at END,
    failure_task_id = coalesce(failure_task_id, $11), failure_type = coalesce(failure_type, $12),
    failure_message = coalesce(failure_message, $13)
  WHERE tenant_id = $1 AND id = $2
  RETURNING finished_at`,
    [
      p.tenantId,
      p.runId,
      p.state,
      p.sequence,
      p.ended,
      p.dead,
      p.skipped,
      p.cancelled,
      p.failing,
      p.isTerminal,
      p.failure?.taskId ?? null,
      p.failure?.type ?? null,
      p.failure?.message ?? null,
    ],
  );

/** Says on a cancelled run's row, which tells its end, who made it and why. */
export const noteCancellation = (db: Db, p: { tenantId: number; runId: bigint; principal: string; comment: string }) =>
  db.rows(
    "note_cancellation",
    `
  UPDATE run SET cancelled_by = $3, cancel_comment = $4
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId, p.principal, p.comment],
  );

/** Opens an ended run's row again, its counters derived anew and its deadline armed again; answers how it had ended. */
export const reopenRunRow = (
  db: Db,
  p: {
    tenantId: number;
    runId: bigint;
    sequence: number;
    open: number;
    dead: number;
    skipped: number;
    cancelled: number;
    failing: number;
    deadlineMs: number;
  },
) =>
  db.one<{ finished_at: Date; cancelled_by: string | null; cancel_comment: string | null }>(
    "reopen_run_row",
    `
  WITH before AS MATERIALIZED (
    SELECT finished_at, cancelled_by, cancel_comment FROM run WHERE tenant_id = $1 AND id = $2
  ), reopened AS (
    UPDATE run
    SET state = 2, sequence = $3, open_count = $4, dead_count = $5, skipped_count = $6, cancelled_count = $7,
      failing_count = $8, finished_at = NULL, failure_task_id = NULL, failure_type = NULL, failure_message = NULL,
      cancelled_by = NULL, cancel_comment = NULL,
      started_at = coalesce(started_at, clock_timestamp()),
      deadline_at = CASE WHEN $9::bigint > 0 THEN clock_timestamp() + $9::bigint * interval '1 ms' END
    WHERE tenant_id = $1 AND id = $2
    RETURNING deadline_at
  ), timer AS (
    INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
    SELECT $1, $2, 2, deadline_at FROM reopened WHERE deadline_at IS NOT NULL
    ON CONFLICT (tenant_id, run_id, kind) DO UPDATE SET due_at = excluded.due_at
  )
  SELECT finished_at, cancelled_by, cancel_comment FROM before`,
    [p.tenantId, p.runId, p.sequence, p.open, p.dead, p.skipped, p.cancelled, p.failing, p.deadlineMs],
  );
