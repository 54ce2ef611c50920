import { int4Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** An event of a run, to be sent (G2). Written under the run's lock, in the order of its sequence (G3). */
export interface NewEvent {
  readonly sequence: number;
  readonly type: number;
  readonly taskId: bigint | null;
  readonly attempt: number | null;
  readonly fence: bigint | null;
  readonly sessionId: bigint | null;
  readonly leasedAt: Date | null;
  readonly startedAt: Date | null;
  readonly outcome: number | null;
  readonly errorType: string | null;
  readonly retryAfterMs: number | null;
}

export const insertEvents = (
  db: Db,
  p: { tenantId: number; runId: bigint; definitionId: bigint; events: readonly NewEvent[] },
) => {
  const { events } = p;
  return db.rows(
    "insert_events",
    `
  INSERT INTO outbox (lane_group, tenant_id, run_id, definition_id, sequence, type, task_id, attempt, fence, session_id,
    leased_at, started_at, outcome, error_type, retry_at)
  SELECT ($2::bigint & 15)::smallint, $1, $2, $3, sequence, type, task_id, attempt, fence, session_id, leased_at,
    started_at, outcome, error_type, clock_timestamp() + retry_after_ms * interval '1 ms'
  FROM unnest($4::int[], $5::int[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[], $10::timestamptz[],
      $11::timestamptz[], $12::int[], $13::text[], $14::bigint[])
    AS event (sequence, type, task_id, attempt, fence, session_id, leased_at, started_at, outcome, error_type,
      retry_after_ms)
  ORDER BY sequence`,
    [
      p.tenantId,
      p.runId,
      p.definitionId,
      int4Array(events.map((event) => event.sequence)),
      int4Array(events.map((event) => event.type)),
      events.map((event) => event.taskId),
      events.map((event) => event.attempt),
      events.map((event) => event.fence),
      events.map((event) => event.sessionId),
      events.map((event) => event.leasedAt),
      events.map((event) => event.startedAt),
      events.map((event) => event.outcome),
      events.map((event) => event.errorType),
      events.map((event) => event.retryAfterMs),
    ],
  );
};

/** Events that neither an attempt nor the run's row tells, for the run's history. */
export const insertRunEvents = (
  db: Db,
  p: {
    tenantId: number;
    runId: bigint;
    principal: string;
    /** `at` where the move was made earlier. */
    events: readonly { sequence: number; type: number; taskId: bigint | null; at?: Date }[];
  },
) =>
  db.rows(
    "insert_run_events",
    `
  INSERT INTO run_event (tenant_id, run_id, sequence, type, task_id, principal, at)
  SELECT $1, $2, sequence, type, task_id, $6, coalesce(at, clock_timestamp())
  FROM unnest($3::int[], $4::int[], $5::bigint[], $7::timestamptz[]) AS event (sequence, type, task_id, at)`,
    [
      p.tenantId,
      p.runId,
      int4Array(p.events.map((event) => event.sequence)),
      int4Array(p.events.map((event) => event.type)),
      p.events.map((event) => event.taskId),
      p.principal,
      p.events.map((event) => event.at ?? null),
    ],
  );
