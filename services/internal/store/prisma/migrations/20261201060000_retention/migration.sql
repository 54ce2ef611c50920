-- Days for which ended runs of the tenant are kept. NULL: the mesh's default.
ALTER TABLE tenant_quota ADD COLUMN keep_days integer CHECK (keep_days > 0);

-- Runs that retention removed and whose tasks, attempts, logs and events are not all gone yet.
CREATE TABLE removed_run (
  tenant_id integer NOT NULL,
  run_id bigint NOT NULL,
  PRIMARY KEY (tenant_id, run_id)
);
