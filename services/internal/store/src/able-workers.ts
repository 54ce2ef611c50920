import type { Db } from "./db.ts";

/** What a task needs of a worker. */
export interface Need {
  readonly handler: string;
  readonly queue: string;
  /** Sorted, joined by a space. */
  readonly requires: string;
}

export interface AbleWorkersRow {
  with_handler: number;
  on_queue: number;
  able: number;
  slots: number;
  slots_used: number;
  /** Of the worker with the handler on the queue that lacks the fewest capabilities; null where there is none. */
  lacking: string[] | null;
}

const columns = (needs: readonly Need[]) => [
  needs.map((need) => need.handler),
  needs.map((need) => need.queue),
  needs.map((need) => need.requires),
];

const WANTED = "unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS wanted (handler, queue, requires, place)";

/**
 * For each need, in order, the workers that are there: open, and seen within a lease, or within two beats of their
 * stream where the lease is shorter. Only the tenant's open sessions are looked at.
 */
export const countAbleWorkers = (db: Db, p: { tenantId: number; needs: readonly Need[] }) =>
  db.rows<AbleWorkersRow>(
    "count_able_workers",
    `
  WITH there AS MATERIALIZED (
    SELECT handlers, queues, capabilities, slots,
      least(slots, (SELECT count(*)::int FROM lease WHERE lease.session_id = session.id)) AS used
    FROM session
    WHERE tenant_id = $1 AND closed_at IS NULL AND handlers && $2::text[]
      AND seen_at > clock_timestamp() - greatest(lease_ms, 20000) * interval '1 ms'
  )
  SELECT found.with_handler, found.on_queue, found.able, found.slots, found.slots_used, nearest.lacking
  FROM ${WANTED}
  CROSS JOIN LATERAL (
    SELECT count(*)::int AS with_handler,
      (count(*) FILTER (WHERE is_on_queue))::int AS on_queue,
      (count(*) FILTER (WHERE is_able))::int AS able,
      coalesce(sum(slots) FILTER (WHERE is_able), 0)::int AS slots,
      coalesce(sum(used) FILTER (WHERE is_able), 0)::int AS slots_used
    FROM (
      SELECT slots, used, wanted.queue = ANY (queues) AS is_on_queue,
        wanted.queue = ANY (queues) AND capabilities @> string_to_array(wanted.requires, ' ') AS is_able
      FROM there
      WHERE wanted.handler = ANY (handlers)
    ) AS worker
  ) AS found
  LEFT JOIN LATERAL (
    SELECT ARRAY(
      SELECT need FROM unnest(string_to_array(wanted.requires, ' ')) AS need WHERE need <> ALL (capabilities)
    ) AS lacking
    FROM there
    WHERE wanted.handler = ANY (handlers) AND wanted.queue = ANY (queues)
    ORDER BY cardinality(ARRAY(
      SELECT need FROM unnest(string_to_array(wanted.requires, ' ')) AS need WHERE need <> ALL (capabilities)
    ))
    LIMIT 1
  ) AS nearest ON true
  ORDER BY wanted.place`,
    [p.tenantId, ...columns(p.needs)],
  );

/** For each need, in order, when a worker that could run it was last seen, among the tenant's newest 1,000 sessions. */
export const findLastAbleWorkers = (db: Db, p: { tenantId: number; needs: readonly Need[] }) =>
  db.rows<{ seen_at: Date | null }>(
    "find_last_able_workers",
    `
  WITH recent AS MATERIALIZED (
    SELECT handlers, queues, capabilities, seen_at FROM session
    WHERE tenant_id = $1
    ORDER BY id DESC
    LIMIT 1000
  )
  SELECT (
    SELECT max(seen_at) FROM recent
    WHERE wanted.handler = ANY (handlers) AND wanted.queue = ANY (queues)
      AND capabilities @> string_to_array(wanted.requires, ' ')
  ) AS seen_at
  FROM ${WANTED}
  ORDER BY wanted.place`,
    [p.tenantId, ...columns(p.needs)],
  );
