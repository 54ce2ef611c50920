import type { Db } from "./db.ts";
import type { EventRow } from "./outbox.ts";

/** An entry of a run's history: what its event said when it was in the outbox, and who made a move that people make. */
export interface HistoryRow extends EventRow {
  /** Empty for what the mesh does by itself. */
  readonly principal: string;
  readonly comment: string;
}

interface StoredRow {
  definition_id: bigint;
  sequence: number;
  type: number;
  at: number;
  ordinal: number;
  attempt: number;
  fence: bigint;
  session_id: bigint;
  leased_at: number;
  started_at: number;
  outcome: number;
  error_type: string;
  retry_at: number;
  principal: string;
  comment: string;
}

const micros = (column: string) => `coalesce(round(date_part('epoch', ${column}) * 1000000), 0)`;

/**
 * A run's events after a sequence, in order. They are not kept as such: event 1 is the run's creation, those of tasks
 * are its attempts, other moves are in `run_event`, and the last of an ended run is its end. Every move takes the next
 * sequence under the run's lock and writes one of the four, so their union has no gaps (G2, G3). So the page is known
 * by its sequences: no index has them, the run's attempts are read whole, but only those of the page are sorted.
 * A run that is not there has no events. Both bounds of the task ids are given, so other partitions are not touched.
 */
export async function listEvents(
  db: Db,
  p: { tenantId: number; runId: bigint; afterSequence: number; limit: number },
): Promise<HistoryRow[]> {
  const stored = await db.rows<StoredRow>(
    "list_events",
    `
  SELECT (SELECT run.definition_id FROM run WHERE run.tenant_id = $1 AND run.id = $2) AS definition_id,
    entry.sequence, entry.type, ${micros("entry.at")} AS at,
    coalesce((entry.task_id & 1048575)::int, -1) AS ordinal,
    coalesce(entry.attempt, 0) AS attempt,
    coalesce(entry.fence, 0) AS fence,
    coalesce(entry.session_id, 0) AS session_id,
    ${micros("entry.leased_at")} AS leased_at,
    ${micros("entry.started_at")} AS started_at,
    coalesce(entry.outcome, 0)::int AS outcome,
    coalesce(entry.error_type, '') AS error_type,
    ${micros("entry.retry_at")} AS retry_at,
    coalesce(entry.principal, '') AS principal,
    coalesce(entry.comment, '') AS comment
  FROM (
    SELECT told.sequence, told.type, told.at, told.task_id, told.attempt, told.fence, told.session_id, told.leased_at,
      told.started_at, told.outcome, told.error_type, told.retry_at, told.principal, told.comment
    FROM (
      SELECT 1 AS sequence, 1::smallint AS type, run.created_at AS at, NULL::bigint AS task_id, NULL::int AS attempt,
        NULL::bigint AS fence, NULL::bigint AS session_id, NULL::timestamptz AS leased_at,
        NULL::timestamptz AS started_at, NULL::smallint AS outcome, NULL::text AS error_type,
        NULL::timestamptz AS retry_at, run.principal, NULL::text AS comment
      FROM run
      WHERE run.tenant_id = $1 AND run.id = $2 AND $3 < 1
      UNION ALL
      SELECT attempt.sequence, attempt.event_type, attempt.ended_at, attempt.task_id, attempt.number,
        attempt.fence, attempt.session_id, attempt.leased_at, attempt.started_at, attempt.outcome, attempt.error_type,
        attempt.retry_at, NULL, NULL
      FROM attempt
      WHERE attempt.tenant_id = $1 AND attempt.task_id >= $2::bigint << 20 AND attempt.task_id < ($2::bigint + 1) << 20
        AND attempt.sequence > greatest($3, 0) AND attempt.sequence <= $3::int + $4::int
      UNION ALL
      SELECT run_event.sequence, run_event.type, run_event.at, run_event.task_id, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, run_event.principal, run_event.comment
      FROM run_event
      WHERE run_event.tenant_id = $1 AND run_event.run_id = $2 AND run_event.sequence > $3
        AND run_event.sequence <= $3::int + $4::int
      UNION ALL
      -- States 4 to 7 (succeeded, failed, cancelled, timed out) are told by events 5 to 8.
      SELECT run.sequence, run.state + 1::smallint, run.finished_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, run.cancelled_by, run.cancel_comment
      FROM run
      WHERE run.tenant_id = $1 AND run.id = $2 AND run.state BETWEEN 4 AND 7 AND run.sequence > $3
    ) AS told
    ORDER BY told.sequence
    LIMIT $4 OFFSET 0
  ) AS entry
  ORDER BY entry.sequence`,
    [p.tenantId, p.runId, p.afterSequence, p.limit],
  );
  return stored.map((row) => ({
    tenantId: p.tenantId,
    runId: p.runId,
    definitionId: row.definition_id,
    sequence: row.sequence,
    type: row.type,
    atMicros: row.at,
    ordinal: row.ordinal,
    attempt: row.attempt,
    fence: row.fence,
    sessionId: row.session_id,
    leasedAtMicros: row.leased_at,
    startedAtMicros: row.started_at,
    outcome: row.outcome,
    errorType: row.error_type,
    retryAtMicros: row.retry_at,
    principal: row.principal,
    comment: row.comment,
  }));
}

/** What an event says of the definition it belongs to. */
export interface EventDefinitionRow {
  tenant_id: number;
  id: bigint;
  workflow: string;
  version: number;
  body: Buffer;
}

/** The definitions named, in no order; one that is not there does not come back. */
export const listEventDefinitions = (db: Db, p: { tenantIds: readonly number[]; ids: readonly bigint[] }) =>
  db.rows<EventDefinitionRow>(
    "list_event_definitions",
    `
  SELECT named.tenant_id, named.id, found.workflow, found.version, found.body
  FROM unnest($1::int[], $2::bigint[]) AS named (tenant_id, id)
  CROSS JOIN LATERAL (
    SELECT workflow.name AS workflow, definition.version, definition.body
    FROM definition
    JOIN workflow ON workflow.tenant_id = definition.tenant_id AND workflow.id = definition.workflow_id
    WHERE definition.tenant_id = named.tenant_id AND definition.id = named.id
    OFFSET 0
  ) AS found`,
    [p.tenantIds, p.ids],
  );

/** Names of workers by session, in no order. */
export const listEventWorkers = (db: Db, p: { tenantIds: readonly number[]; sessionIds: readonly bigint[] }) =>
  db.rows<{ tenant_id: number; id: bigint; name: string }>(
    "list_event_workers",
    `
  SELECT named.tenant_id, named.id, found.name
  FROM unnest($1::int[], $2::bigint[]) AS named (tenant_id, id)
  CROSS JOIN LATERAL (
    SELECT session.name FROM session
    WHERE session.tenant_id = named.tenant_id AND session.id = named.id
    OFFSET 0
  ) AS found`,
    [p.tenantIds, p.sessionIds],
  );

export const listEventTenants = (db: Db, p: { ids: readonly number[] }) =>
  db.rows<{ id: number; name: string }>(
    "list_event_tenants",
    `
  SELECT id, name FROM tenant
  WHERE id = ANY ($1::int[])`,
    [p.ids],
  );
