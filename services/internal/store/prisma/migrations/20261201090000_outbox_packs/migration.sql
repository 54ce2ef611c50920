-- A row holds the events that one statement committed for one lane group, up to 64 in their order: an array a column,
-- NULL where none of them has it. A row and an index entry for each event were most of what an event cost.
CREATE TABLE outbox_pack (
  lane_group smallint NOT NULL,
  id bigint NOT NULL DEFAULT nextval('outbox_id'),
  tenant_id integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Events in all.
  size smallint NOT NULL,
  run_ids bigint[] NOT NULL,
  definition_ids bigint[] NOT NULL,
  sequences integer[] NOT NULL,
  types smallint[] NOT NULL,
  -- Type of the run's end where it follows the event at once, under the next sequence; else 0.
  ends smallint[],
  task_ids bigint[],
  attempts integer[],
  fences bigint[],
  session_ids bigint[],
  leased_ats timestamptz[],
  started_ats timestamptz[],
  outcomes smallint[],
  error_types text[],
  retry_ats timestamptz[],
  CONSTRAINT outbox_pack_pkey PRIMARY KEY (lane_group, id)
) WITH (toast_tuple_target = 8160);

INSERT INTO outbox_pack (lane_group, id, tenant_id, at, size, run_ids, definition_ids, sequences, types, task_ids,
  attempts, fences, session_ids, leased_ats, started_ats, outcomes, error_types, retry_ats)
SELECT lane_group, id, tenant_id, at, 1, ARRAY[run_id], ARRAY[definition_id], ARRAY[sequence], ARRAY[type],
  ARRAY[task_id], ARRAY[attempt], ARRAY[fence], ARRAY[session_id], ARRAY[leased_at], ARRAY[started_at], ARRAY[outcome],
  ARRAY[error_type], ARRAY[retry_at]
FROM outbox;

DROP TABLE outbox;
ALTER TABLE outbox_pack RENAME TO outbox;
ALTER TABLE outbox RENAME CONSTRAINT outbox_pack_pkey TO outbox_pkey;
