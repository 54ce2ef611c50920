import { byteaArray, int4Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { EventRow } from "./outbox.ts";

/**
 * Sets events of one run aside, each once; those that are there already stay as they are. `behind` does so only while the
 * run has parked events: a run released a moment ago goes on. Answers which of them are parked now. Within a transaction that
 * holds the run's lane group, before the same events leave the outbox.
 */
export const parkEvents = (
  tx: Db,
  p: { tenantId: number; runId: bigint; events: readonly EventRow[]; error: string; behind: boolean },
) =>
  tx.rows<{ sequence: number }>(
    "park_events",
    `
  INSERT INTO outbox_parked (tenant_id, run_id, sequence, body, error)
  SELECT $1, $2, event.sequence, event.body, $5
  FROM unnest($3::int[], $4::bytea[]) AS event (sequence, body)
  WHERE NOT $6 OR EXISTS (SELECT FROM outbox_parked WHERE outbox_parked.tenant_id = $1 AND outbox_parked.run_id = $2)
  ON CONFLICT (tenant_id, run_id, sequence) DO UPDATE SET body = outbox_parked.body
  RETURNING sequence`,
    [
      p.tenantId,
      p.runId,
      int4Array(p.events.map((event) => event.sequence)),
      byteaArray(p.events.map(writeBody)),
      p.error,
      p.behind,
    ],
  );

/** What stands for nothing in an event is left out. */
function writeBody(event: EventRow): Buffer {
  const { ordinal } = event;
  return Buffer.from(
    JSON.stringify({
      definition_id: String(event.definitionId),
      type: event.type,
      at: event.atMicros,
      ...(ordinal >= 0 && { task_id: String((event.runId << 20n) | BigInt(ordinal)) }),
      ...(event.attempt > 0 && { attempt: event.attempt }),
      ...(event.fence > 0n && { fence: String(event.fence) }),
      ...(event.sessionId > 0n && { session_id: String(event.sessionId) }),
      ...(event.leasedAtMicros > 0 && { leased_at: event.leasedAtMicros }),
      ...(event.startedAtMicros > 0 && { started_at: event.startedAtMicros }),
      ...(event.outcome > 0 && { outcome: event.outcome }),
      ...(event.errorType !== "" && { error_type: event.errorType }),
      ...(event.retryAtMicros > 0 && { retry_at: event.retryAtMicros }),
    }),
  );
}

const time = (field: string) => `'epoch'::timestamptz + (body->>'${field}')::bigint * interval '1 microsecond'`;

/**
 * Puts a run's parked events back, under ids below every other so that they go ahead of its later ones. Within a
 * transaction that has locked the run's lane group against its holder.
 */
export const unparkEvents = (tx: Db, p: { tenantId: number; runId: bigint }) =>
  tx.rows<{ id: bigint }>(
    "unpark_events",
    `
  WITH gone AS (
    DELETE FROM outbox_parked
    WHERE tenant_id = $1 AND run_id = $2
    RETURNING sequence, convert_from(body, 'UTF8')::json AS body
  )
  INSERT INTO outbox (id, lane_group, tenant_id, at, size, run_ids, definition_ids, sequences, types, task_ids, attempts,
    fences, session_ids, leased_ats, started_ats, outcomes, error_types, retry_ats)
  SELECT nextval('outbox_id') - 4503599627370496, ($2::bigint & 15)::smallint, $1, ${time("at")}, 1, ARRAY[$2::bigint],
    ARRAY[(body->>'definition_id')::bigint], ARRAY[sequence], ARRAY[(body->>'type')::smallint],
    ARRAY[(body->>'task_id')::bigint], ARRAY[(body->>'attempt')::int], ARRAY[(body->>'fence')::bigint],
    ARRAY[(body->>'session_id')::bigint], ARRAY[${time("leased_at")}], ARRAY[${time("started_at")}],
    ARRAY[(body->>'outcome')::smallint], ARRAY[body->>'error_type'], ARRAY[${time("retry_at")}]
  FROM (SELECT sequence, body FROM gone ORDER BY sequence) AS gone
  RETURNING id`,
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
