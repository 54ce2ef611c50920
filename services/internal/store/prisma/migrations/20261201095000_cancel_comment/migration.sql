-- Who cancelled a run, and why. The end of a run is told by its row until it is opened again, then by `run_event`.
ALTER TABLE run ADD COLUMN cancelled_by text, ADD COLUMN cancel_comment text;
ALTER TABLE run_event ADD COLUMN comment text NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN comment text NOT NULL DEFAULT '';
