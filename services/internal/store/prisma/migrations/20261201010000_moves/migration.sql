-- When the task became ready: schedule-to-start counts from then until the handler starts.
ALTER TABLE lease ADD COLUMN ready_at timestamptz;

-- Answers of moves that must not be made twice, by their request ids (kept 24 h).
CREATE TABLE request (
  tenant_id integer NOT NULL REFERENCES tenant (id),
  digest uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, digest)
);
CREATE INDEX request_created ON request (created_at);
