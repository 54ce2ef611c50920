-- Limits: a slot is taken on entering ready, kept through recovery, and freed by what ends, suspends or retries the task.
-- The key is 'k:' and a concurrency key, or 'r:' and a run's id for max_parallel.
CREATE TABLE slot (
  tenant_id integer NOT NULL,
  key text NOT NULL,
  task_id bigint NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, key, task_id)
);
CREATE INDEX slot_task ON slot (task_id);

-- `limited`: it must pass a limit before it is ready. `slot_limit` and `run_limit` are the limits it must pass, 0 for none.
ALTER TABLE held ADD COLUMN limited boolean NOT NULL DEFAULT false;
ALTER TABLE held ADD COLUMN slot_limit integer NOT NULL DEFAULT 0;
ALTER TABLE held ADD COLUMN run_limit integer NOT NULL DEFAULT 0;
ALTER TABLE scheduled ADD COLUMN limited boolean NOT NULL DEFAULT false;

-- Runs that share a limit: one row for each that is active or waits, oldest first.
CREATE TABLE run_slot (
  tenant_id integer NOT NULL,
  key text NOT NULL,
  run_id bigint NOT NULL,
  slot_limit integer NOT NULL,
  -- False while it waits as PENDING.
  active boolean NOT NULL,
  PRIMARY KEY (tenant_id, key, run_id)
);
CREATE INDEX run_slot_run ON run_slot (run_id);
