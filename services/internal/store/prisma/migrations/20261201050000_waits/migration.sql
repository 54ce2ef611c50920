-- What handlers recorded, by the place of the call among those of its task; one without `done` waits.
CREATE TABLE step (
  tenant_id integer NOT NULL,
  task_id bigint NOT NULL,
  position integer NOT NULL,
  -- 1 step, 2 sleep, 3 signal, 4 child, 5 result.
  kind smallint NOT NULL,
  name text NOT NULL,
  occurrence integer NOT NULL,
  -- The order in which answers were recorded, from 1.
  done integer,
  -- 1 answered, 2 failed (`value` is the error), 3 timed out.
  outcome smallint NOT NULL DEFAULT 0,
  value bytea,
  -- Bytes of the answers up to this one: what the bound of a task is held to.
  total_bytes bigint NOT NULL DEFAULT 0,
  due_at timestamptz,
  child_run_id bigint,
  -- The child failed and ended an attempt: the next pass starts another.
  renew boolean NOT NULL DEFAULT false,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, task_id, position)
) PARTITION BY RANGE (task_id);
-- Unique: two writers of one record are a bug.
CREATE UNIQUE INDEX step_done ON step (tenant_id, task_id, done) WHERE done IS NOT NULL;

CREATE SEQUENCE signal_id;
-- Signals that nobody took yet, first in, first out by (run, name).
CREATE TABLE signal (
  tenant_id integer NOT NULL,
  run_id bigint NOT NULL,
  id bigint NOT NULL DEFAULT nextval('signal_id'),
  name text NOT NULL,
  value bytea,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, run_id, id)
) PARTITION BY RANGE (run_id);

-- Its run is paused: what wakes is held.
ALTER TABLE suspended ADD COLUMN paused boolean NOT NULL DEFAULT false;
-- A child that goes on when its parent is cancelled.
ALTER TABLE run ADD COLUMN detached boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION ensure_partitions(last_run_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  slot bigint := last_run_id >> 18;
  low bigint := slot << 18;
  high bigint := (slot + 1) << 18;
BEGIN
  IF to_regclass('signal_p' || slot) IS NOT NULL THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('runmesh.partitions'));
  IF to_regclass('signal_p' || slot) IS NOT NULL THEN RETURN; END IF;
  -- An old version that was at it while this one came has made these.
  IF to_regclass('run_event_p' || slot) IS NULL THEN
    PERFORM add_partition('run', slot, low, high, 'WITH (fillfactor = 45)');
    PERFORM add_partition('task', slot, low << 20, high << 20, '');
    PERFORM add_partition('attempt', slot, low << 20, high << 20, '');
    PERFORM add_partition('attempt_log', slot, low << 20, high << 20, '');
    PERFORM add_partition('run_event', slot, low, high, '');
  END IF;
  PERFORM add_partition('step', slot, low << 20, high << 20, '');
  PERFORM add_partition('signal', slot, low, high, '');
END $$;

-- Partitions for the runs that there are.
DO $$
DECLARE slot bigint;
BEGIN
  FOR slot IN
    SELECT substring(child.relname FROM '_p(\d+)$')::bigint
    FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'run_event'::regclass
  LOOP
    PERFORM add_partition('step', slot, (slot << 18) << 20, ((slot + 1) << 18) << 20, '');
    PERFORM add_partition('signal', slot, slot << 18, (slot + 1) << 18, '');
  END LOOP;
END $$;
