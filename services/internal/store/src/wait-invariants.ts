import { type Check, check } from "./invariant.ts";
import { MAX_SIGNALS } from "./signals.ts";

/** Of suspended tasks, what they wait for, and signals. */
export const WAIT_CHECKS: readonly Check[] = [
  check({
    check: "a suspended task waits for something",
    advice: "Report it: nobody will wake these tasks. Retrying the run after a cancel lets them go on.",
    broken: `
    SELECT 'task ' || suspended.task_id FROM suspended
    WHERE NOT EXISTS (
      SELECT FROM step
      WHERE step.tenant_id = suspended.tenant_id AND step.task_id = suspended.task_id AND step.done IS NULL)`,
  }),
  check({
    check: "what a suspended task waits for has not come yet",
    advice: "Report it: a wake-up was lost.",
    broken: `
    SELECT 'task ' || suspended.task_id FROM suspended
    WHERE EXISTS (
      SELECT FROM step
      WHERE step.tenant_id = suspended.tenant_id AND step.task_id = suspended.task_id AND step.done IS NULL
        AND (step.due_at IS NULL OR step.due_at > clock_timestamp())
        AND CASE step.kind
          WHEN 3 THEN EXISTS (
            SELECT FROM signal
            WHERE signal.tenant_id = step.tenant_id AND signal.run_id = step.task_id >> 20 AND signal.name = step.name)
          WHEN 5 THEN NOT EXISTS (
            SELECT FROM run
            WHERE run.tenant_id = step.tenant_id AND run.id = step.child_run_id AND run.state IN (1, 2, 3))
          ELSE false END)`,
  }),
  check({
    check: "a suspended task wakes with the first of its waits that has a time",
    advice: "Report it: these tasks oversleep.",
    broken: `
    SELECT 'task ' || suspended.task_id FROM suspended
    WHERE suspended.wake_at IS DISTINCT FROM (
      SELECT min(step.due_at) FROM step
      WHERE step.tenant_id = suspended.tenant_id AND step.task_id = suspended.task_id AND step.done IS NULL)`,
  }),
  check({
    check: "a suspended task is woken soon after its time",
    advice: "Look whether a scheduler runs: its waker is behind by more than a minute.",
    broken: `SELECT 'task ' || task_id FROM suspended WHERE wake_at < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "a run keeps at most 1,000 signals that nobody took",
    advice: "Report it: the bound was passed by.",
    broken: `SELECT 'run ' || run_id FROM signal GROUP BY tenant_id, run_id HAVING count(*) > ${MAX_SIGNALS}`,
  }),
];
