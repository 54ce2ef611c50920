import type { Db } from "./db.ts";

/** Those of the runs named that have parked rows. */
export const findParkedRuns = (db: Db, p: { tenantIds: readonly number[]; runIds: readonly bigint[] }) =>
  db.rows<{ run_id: bigint }>(
    "find_parked_runs",
    `
  SELECT named.run_id
  FROM unnest($1::int[], $2::bigint[]) AS named (tenant_id, run_id)
  CROSS JOIN LATERAL (
    SELECT FROM outbox_parked
    WHERE outbox_parked.tenant_id = named.tenant_id AND outbox_parked.run_id = named.run_id
    LIMIT 1 OFFSET 0
  ) AS parked`,
    [p.tenantIds, p.runIds],
  );

/**
 * Moves rows of one run from the outbox to the parked ones, as JSON. `behind` moves them only while the run has
 * parked rows: a run released a moment ago goes on. Within a transaction that holds the run's lane group.
 */
export const parkOutboxRows = (
  tx: Db,
  p: {
    tenantId: number;
    runId: bigint;
    places: readonly string[];
    ids: readonly number[];
    error: string;
    behind: boolean;
  },
) =>
  tx.rows<{ sequence: number }>(
    "park_outbox_rows",
    `
  WITH gone AS (
    DELETE FROM outbox
    WHERE ctid = ANY ($3::tid[]) AND id = ANY ($4::bigint[]) AND tenant_id = $1 AND run_id = $2
      AND (NOT $6 OR EXISTS (
        SELECT FROM outbox_parked WHERE outbox_parked.tenant_id = $1 AND outbox_parked.run_id = $2))
    RETURNING tenant_id, run_id, sequence, convert_to(row_to_json(outbox)::text, 'UTF8') AS body
  )
  INSERT INTO outbox_parked (tenant_id, run_id, sequence, body, error)
  SELECT gone.tenant_id, gone.run_id, gone.sequence, gone.body, $5
  FROM gone
  ON CONFLICT (tenant_id, run_id, sequence) DO NOTHING
  RETURNING sequence`,
    [p.tenantId, p.runId, `{"${p.places.join('","')}"}`, p.ids, p.error, p.behind],
  );

/**
 * Puts a run's parked rows back under the ids they had, so ahead of its later ones. Within a transaction that has
 * locked the run's lane group against its holder.
 */
export const unparkOutboxRows = (tx: Db, p: { tenantId: number; runId: bigint }) =>
  tx.rows<{ sequence: number }>(
    "unpark_outbox_rows",
    `
  WITH gone AS (
    DELETE FROM outbox_parked
    WHERE tenant_id = $1 AND run_id = $2
    RETURNING body
  )
  INSERT INTO outbox (lane_group, id, tenant_id, run_id, definition_id, sequence, type, at, task_id, attempt, fence,
    session_id, leased_at, started_at, outcome, error_type, retry_at)
  SELECT r.lane_group, r.id, r.tenant_id, r.run_id, r.definition_id, r.sequence, r.type, r.at, r.task_id, r.attempt,
    r.fence, r.session_id, r.leased_at, r.started_at, r.outcome, r.error_type, r.retry_at
  FROM gone
  CROSS JOIN LATERAL json_populate_record(NULL::outbox, convert_from(gone.body, 'UTF8')::json) AS r
  RETURNING sequence`,
    [p.tenantId, p.runId],
  );

export interface ParkedRow {
  run_id: bigint;
  sequence: number;
  /** Why it, or the first of its run, could not be sent. */
  error: string;
  parked_at: Date;
}

/** By run and sequence, after the one given. */
export const listParked = (db: Db, p: { tenantId: number; afterRunId: bigint; afterSequence: number; limit: number }) =>
  db.rows<ParkedRow>(
    "list_parked",
    `
  SELECT run_id, sequence, error, parked_at
  FROM outbox_parked
  WHERE tenant_id = $1 AND (run_id, sequence) > ($2, $3)
  ORDER BY run_id, sequence
  LIMIT $4`,
    [p.tenantId, p.afterRunId, p.afterSequence, p.limit],
  );
