import { int4Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { packEvents } from "./outbox-packs.ts";

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
  INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, task_ids, attempts, fences,
    session_ids, leased_ats, started_ats, outcomes, error_types, retry_ats)
  SELECT ($2::bigint & 15)::smallint, $1, count(*), array_agg($2::bigint), array_agg($3::bigint),
    array_agg(sequence ORDER BY sequence), array_agg(type::smallint ORDER BY sequence),
    array_agg(task_id ORDER BY sequence), array_agg(attempt ORDER BY sequence), array_agg(fence ORDER BY sequence),
    array_agg(session_id ORDER BY sequence), array_agg(leased_at ORDER BY sequence),
    array_agg(started_at ORDER BY sequence), array_agg(outcome::smallint ORDER BY sequence),
    array_agg(error_type ORDER BY sequence),
    array_agg(clock_timestamp() + retry_after_ms * interval '1 ms' ORDER BY sequence)
  FROM unnest($4::int[], $5::int[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[], $10::timestamptz[],
      $11::timestamptz[], $12::int[], $13::text[], $14::bigint[], $15::int[])
    AS event (sequence, type, task_id, attempt, fence, session_id, leased_at, started_at, outcome, error_type,
      retry_after_ms, pack)
  GROUP BY pack
  ORDER BY pack`,
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
      int4Array(packEvents(events.map(() => p.runId))),
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
    comment?: string | undefined;
    /** `at` where the move was made earlier. */
    events: readonly { sequence: number; type: number; taskId: bigint | null; at?: Date }[];
  },
) =>
  db.rows(
    "insert_run_events",
    `
  INSERT INTO run_event (tenant_id, run_id, sequence, type, task_id, principal, comment, at)
  SELECT $1, $2, sequence, type, task_id, $6, $8, coalesce(at, clock_timestamp())
  FROM unnest($3::int[], $4::int[], $5::bigint[], $7::timestamptz[]) AS event (sequence, type, task_id, at)`,
    [
      p.tenantId,
      p.runId,
      int4Array(p.events.map((event) => event.sequence)),
      int4Array(p.events.map((event) => event.type)),
      p.events.map((event) => event.taskId),
      p.principal,
      p.events.map((event) => event.at ?? null),
      p.comment ?? "",
    ],
  );
