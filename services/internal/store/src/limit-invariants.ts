import { type Check, check } from "./invariant.ts";

/** Of limits: their slots, their counts and what waits for them. */
export const LIMIT_CHECKS: readonly Check[] = [
  check({
    check: "a slot is held by a task that is ready or leased",
    advice: "Report it: the slot will never be free again.",
    broken: `
    SELECT 'slot ' || slot.key || ' of task ' || slot.task_id FROM slot
    WHERE NOT EXISTS (SELECT FROM ready WHERE ready.tenant_id = slot.tenant_id AND ready.task_id = slot.task_id)
      AND NOT EXISTS (SELECT FROM lease WHERE lease.tenant_id = slot.tenant_id AND lease.task_id = slot.task_id)`,
  }),
  check({
    check: "a limit's count agrees with its slots",
    advice: "Report it: a limit lets in too many, or too few.",
    broken: `
    SELECT 'limit ' || key FROM (
      SELECT tenant_id, key, used FROM slot_count
      UNION ALL SELECT tenant_id, key, -1 FROM slot
      UNION ALL SELECT tenant_id, 'w:' || key, -1 FROM run_slot WHERE active
    ) AS entry
    GROUP BY tenant_id, key HAVING sum(used) <> 0`,
  }),
  check({
    check: "a limit knows what waits for it",
    advice: "Look whether a scheduler runs: its admission passes free slots on that nobody else will.",
    broken: `
    SELECT DISTINCT 'limit ' || waiting.key FROM (
      SELECT tenant_id, 'k:' || concurrency_key AS key FROM held WHERE reason IN (2, 3) AND slot_limit > 0
      UNION ALL SELECT tenant_id, 'r:' || (task_id >> 20) FROM held WHERE reason IN (2, 3) AND run_limit > 0
      UNION ALL SELECT tenant_id, 'w:' || key FROM run_slot WHERE NOT active
    ) AS waiting
    WHERE NOT EXISTS (
      SELECT FROM slot_count
      WHERE slot_count.tenant_id = waiting.tenant_id AND slot_count.key = waiting.key AND slot_count.waits)`,
  }),
  check({
    check: "a run's slot is held by a run that has not ended",
    advice: "Report it: the slot will never be free again.",
    broken: `
    SELECT 'run ' || run_slot.run_id FROM run_slot
    LEFT JOIN run ON run.tenant_id = run_slot.tenant_id AND run.id = run_slot.run_id
    WHERE run.state IS NULL OR run.state > 3 OR (run_slot.active AND run.state = 1)`,
  }),
  check({
    check: "a task that waits for a limit is admitted when there is room",
    advice: "Look whether a scheduler runs: its admission is behind by more than a minute.",
    broken: `
    SELECT 'task ' || held.task_id FROM held
    WHERE held.reason IN (2, 3) AND held.held_at < clock_timestamp() - interval '1 minute'
      AND (held.slot_limit = 0 OR held.slot_limit > (
        SELECT count(*) FROM slot WHERE slot.tenant_id = held.tenant_id AND slot.key = 'k:' || held.concurrency_key))
      AND (held.run_limit = 0 OR held.run_limit > (
        SELECT count(*) FROM slot
        WHERE slot.tenant_id = held.tenant_id AND slot.key = 'r:' || (held.task_id >> 20)::text))`,
  }),
];
