-- When a run that waits for its limit is due, where an admission found that to be later: admissions pass it over without
-- a look at the run, however many there are.
ALTER TABLE run_slot ADD COLUMN due_at timestamptz;
CREATE INDEX run_slot_waiting ON run_slot (tenant_id, key, run_id) WHERE NOT active AND due_at IS NULL;

-- Digest of the request that triggered the run, by which a repeat is answered whatever became of the schedule meanwhile.
ALTER TABLE schedule_tick ADD COLUMN request uuid;
CREATE UNIQUE INDEX schedule_tick_request ON schedule_tick (tenant_id, schedule_id, request) WHERE request IS NOT NULL;
