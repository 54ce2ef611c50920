/** `fresh.ids[width_bucket(x, fresh.ids)] = x` is a binary search for x: two CTEs are never joined. */
export const isFresh = (id: string): string =>
  `((SELECT ids FROM fresh))[width_bucket(${id}, (SELECT ids FROM fresh))] = ${id}`;

interface StartParts {
  /** Which keys are tried at all, and what is done about those that are taken. */
  readonly where?: string;
  readonly onConflict?: string;
  /** Whether a run waits to begin. */
  readonly isPending?: string;
  /** CTEs that place the first tasks. */
  readonly placing?: string;
  /** Columns of the answer beside `started`. */
  readonly answers?: string;
}

const HEADS = `
  heads AS (
    INSERT INTO ready (tenant_id, task_id, route_id, rank, attempt, failures, losses, ready_at)
    SELECT $1, task_id, route_id, rank, 0, 0, 0, now()
    FROM unnest($20::bigint[], $21::int[], $22::smallint[]) AS root (task_id, route_id, rank)
    WHERE ${isFresh("(task_id >> 20)")}
  )`;

/**
 * The statement that starts runs (start-runs.ts has its parameters, $1 to $23). Keys are taken in one order, so that
 * batches with the same ones do not wait for each other crosswise.
 */
export const startText = ({
  where = "",
  onConflict = "",
  isPending = "due_at IS NOT NULL",
  placing = HEADS,
  answers = "",
}: StartParts): string => `
  WITH item AS MATERIALIZED (
    SELECT run_id, definition_id, workflow_id, task_count, digest, body_hash, input_at, input_size, labels, key,
      CASE WHEN due_ms > 0 THEN to_timestamp(due_ms / 1000.0) END AS due_at, deadline_ms, max_parallel, traceparent, pack
    FROM unnest($3::bigint[], $4::bigint[], $5::int[], $6::int[], $7::uuid[], $8::uuid[], $10::int[], $11::int[],
        $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::int[], $17::text[], $23::int[])
      AS item (run_id, definition_id, workflow_id, task_count, digest, body_hash, input_at, input_size,
        labels, key, due_ms, deadline_ms, max_parallel, traceparent, pack)
  ), keyed AS (
    INSERT INTO start_key (tenant_id, workflow_id, digest, run_id, body_hash)
    SELECT $1, workflow_id, digest, run_id, body_hash FROM item${where}
    ORDER BY workflow_id, digest
    ${onConflict}
    RETURNING run_id
  ), fresh AS MATERIALIZED (
    SELECT coalesce(array_agg(run_id ORDER BY run_id), ARRAY[-1]::bigint[]) AS ids FROM keyed
  ),${placing}, started AS (
    INSERT INTO run (tenant_id, id, definition_id, workflow_id, state, task_count, open_count, max_parallel, input,
      labels, idempotency_key, created_at, due_at, started_at, deadline_at, principal, traceparent)
    SELECT $1, run_id, definition_id, workflow_id, CASE WHEN ${isPending} THEN 1 ELSE 2 END, task_count, task_count,
      max_parallel, CASE WHEN input_size >= 0 THEN substring($9::bytea FROM input_at FOR input_size) END,
      labels::jsonb, key, now(), due_at, CASE WHEN ${isPending} THEN NULL ELSE now() END,
      CASE WHEN deadline_ms > 0 THEN coalesce(due_at, now()) + deadline_ms * interval '1 ms' END, $2, traceparent
    FROM item
    WHERE ${isFresh("run_id")}
  ), timers AS (
    INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
    SELECT $1, run_id, 1, due_at FROM item WHERE due_at IS NOT NULL AND ${isFresh("run_id")}
    UNION ALL
    SELECT $1, run_id, 2, coalesce(due_at, now()) + deadline_ms * interval '1 ms'
    FROM item WHERE deadline_ms > 0 AND ${isFresh("run_id")}
  ), tasks AS (
    INSERT INTO task (tenant_id, id, pending)
    SELECT $1, task_id, pending
    FROM unnest($18::bigint[], $19::int[]) AS task (task_id, pending)
    WHERE ${isFresh("(task_id >> 20)")}
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types)
    SELECT min(run_id & 15)::smallint, $1, count(*), array_agg(run_id ORDER BY run_id),
      array_agg(definition_id ORDER BY run_id), array_agg(1 ORDER BY run_id), array_agg(1::smallint ORDER BY run_id)
    FROM item
    WHERE ${isFresh("run_id")}
    GROUP BY pack
    ORDER BY pack
  )
  SELECT CASE WHEN ids <> ARRAY[-1]::bigint[] THEN ids::text END AS started${answers} FROM fresh`;
