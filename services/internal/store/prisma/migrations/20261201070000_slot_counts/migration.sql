-- How many slots of each key are taken, and whether anything waits for one: what a statement changes and looks at in one
-- go, under the row's lock. The key is that of `slot`, or 'w:' and the key that runs share. Nothing but the primary key is
-- indexed, so that updates stay within their page.
CREATE TABLE slot_count (
  tenant_id integer NOT NULL,
  key text NOT NULL,
  used integer NOT NULL,
  -- True where a task or run that must pass this limit is held; it may be true for a while after the last has gone.
  waits boolean NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, key)
) WITH (fillfactor = 50);

INSERT INTO slot_count (tenant_id, key, used, waits)
SELECT tenant_id, key, sum(used), bool_or(waits)
FROM (
  SELECT tenant_id, key, 1 AS used, false AS waits FROM slot
  UNION ALL
  SELECT tenant_id, 'w:' || key, active::int, NOT active FROM run_slot
  UNION ALL
  SELECT tenant_id, 'k:' || concurrency_key, 0, true FROM held WHERE reason IN (2, 3) AND slot_limit > 0
  UNION ALL
  SELECT tenant_id, 'r:' || (task_id >> 20), 0, true FROM held WHERE reason IN (2, 3) AND run_limit > 0
) AS counted
GROUP BY tenant_id, key;
