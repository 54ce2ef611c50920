-- When a run was last started of an inline definition, to an hour, or it was last found to be in use: retention removes
-- those that no kept run has.
ALTER TABLE definition ADD COLUMN used_at timestamptz NOT NULL DEFAULT clock_timestamp();
CREATE INDEX definition_unused ON definition (tenant_id, used_at) WHERE inline;
