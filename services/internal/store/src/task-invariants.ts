import { type Check, check, PLACES, SUCCEEDED } from "./invariant.ts";

/** Of tasks: where each stands, and what it came to. */
export const TASK_CHECKS: readonly Check[] = [
  check({
    check: "a task stands in one place",
    advice: "Report it: a task in two places may run twice.",
    broken: `SELECT 'task ' || task_id FROM (${PLACES}) AS place GROUP BY tenant_id, task_id HAVING count(*) > 1`,
  }),
  check({
    check: "an open task without dependencies to wait for stands somewhere",
    advice: "Retry the run: nobody will move these tasks.",
    broken: `
    SELECT 'task ' || task.id FROM task
    JOIN run ON run.tenant_id = task.tenant_id AND run.id = task.id >> 20
    WHERE run.state IN (2, 3) AND task.state = 0 AND task.pending = 0
      AND NOT EXISTS (SELECT FROM (${PLACES}) AS place
        WHERE place.tenant_id = task.tenant_id AND place.task_id = task.id)
      AND NOT ${SUCCEEDED}`,
  }),
  check({
    check: "nothing stands anywhere of a run that is not active",
    advice: "Report it: these tasks could start after their run ended.",
    broken: `
    SELECT 'task ' || place.task_id FROM (${PLACES}) AS place
    LEFT JOIN run ON run.tenant_id = place.tenant_id AND run.id = place.task_id >> 20
    WHERE run.state IS NULL OR run.state NOT IN (2, 3)`,
  }),
  check({
    check: "a task that ended stands nowhere",
    advice: "Report it: an ended task could run again.",
    broken: `
    SELECT 'task ' || place.task_id FROM (${PLACES}) AS place
    JOIN task ON task.tenant_id = place.tenant_id AND task.id = place.task_id
    WHERE task.state <> 0 OR ${SUCCEEDED}`,
  }),
  check({
    check: "a task has at most one accepted result",
    advice: "Report it: two results were accepted.",
    broken: `
    SELECT 'task ' || task_id FROM attempt WHERE outcome = 1 GROUP BY tenant_id, task_id HAVING count(*) > 1`,
  }),
  check({
    check: "a lease is ended soon after its time",
    advice: "Look whether a lease-manager runs: its reaper is behind by more than a minute.",
    broken: `SELECT 'task ' || task_id FROM lease WHERE expires_at < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "a due task is made ready soon after its time",
    advice: "Look whether a scheduler runs: its promoter is behind by more than a minute.",
    broken: `SELECT 'task ' || task_id FROM scheduled WHERE due_at < clock_timestamp() - interval '1 minute'`,
  }),
];
