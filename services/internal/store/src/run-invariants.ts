import { type Check, check, SUCCEEDED } from "./invariant.ts";

/** Of runs: their counters, their ends, their events and who follows them. */
export const RUN_CHECKS: readonly Check[] = [
  check({
    check: "a run counts its tasks right",
    advice: "Report it: the run's counters disagree with its tasks.",
    broken: `
    SELECT 'run ' || run.id FROM run
    JOIN LATERAL (
      SELECT count(*) AS total,
        count(*) FILTER (WHERE task.state = 7) AS dead,
        count(*) FILTER (WHERE task.state = 8) AS cancelled,
        count(*) FILTER (WHERE task.state = 9) AS skipped,
        count(*) FILTER (WHERE task.state = 0 AND NOT ${SUCCEEDED}) AS open
      FROM task
      WHERE task.tenant_id = run.tenant_id AND task.id >= run.id << 20 AND task.id < (run.id + 1) << 20
    ) AS found ON true
    WHERE (run.task_count, run.open_count, run.dead_count, run.cancelled_count, run.skipped_count)
      <> (found.total, found.open, found.dead, found.cancelled, found.skipped)`,
  }),
  check({
    check: "a run has ended when its tasks have, and only then",
    advice: "Report it: nobody will end these runs.",
    broken: `SELECT 'run ' || id FROM run WHERE (open_count = 0) <> (state IN (4, 5, 6, 7))`,
  }),
  check({
    check: "a run's events have no gap",
    advice: "Report it: consumers of the events will miss some.",
    broken: `
    SELECT 'run ' || run.id FROM run
    JOIN LATERAL (
      SELECT count(*) AS n, count(DISTINCT sequence) AS distinct_n, coalesce(max(sequence), 1) AS last
      FROM (
        SELECT sequence FROM attempt
        WHERE attempt.tenant_id = run.tenant_id AND sequence > 0
          AND attempt.task_id >= run.id << 20 AND attempt.task_id < (run.id + 1) << 20
        UNION ALL
        SELECT sequence FROM run_event WHERE run_event.tenant_id = run.tenant_id AND run_event.run_id = run.id
        UNION ALL SELECT 1
        UNION ALL SELECT run.sequence WHERE run.state IN (4, 5, 6, 7)
      ) AS entry
    ) AS history ON true
    WHERE history.n <> run.sequence OR history.distinct_n <> run.sequence OR history.last <> run.sequence`,
  }),
  check({
    check: "a due run timer fires soon after its time",
    advice: "Look whether a scheduler runs: its timers are behind by more than a minute.",
    broken: `SELECT 'run ' || run_id FROM run_timer WHERE due_at < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "a PENDING run waits for its start time or its limit",
    advice: "Report it: nobody will start these runs.",
    broken: `
    SELECT 'run ' || id FROM run
    WHERE state = 1 AND NOT EXISTS (
      SELECT FROM run_timer
      WHERE run_timer.tenant_id = run.tenant_id AND run_timer.run_id = run.id AND run_timer.kind = 1)
      AND NOT EXISTS (
        SELECT FROM run_slot
        WHERE run_slot.tenant_id = run.tenant_id AND run_slot.run_id = run.id AND NOT run_slot.active)`,
  }),
  check({
    check: "the children of a task or run that ended without success follow it",
    advice: "Look whether a scheduler runs: it cancels them within a second. Else cancel these runs.",
    broken: `
    SELECT 'run ' || child.id FROM run AS child
    JOIN run AS parent ON parent.tenant_id = child.tenant_id AND parent.id = child.parent_run_id
    WHERE child.parent_run_id IS NOT NULL AND child.state IN (1, 2, 3) AND NOT child.detached
      AND (parent.state IN (6, 7) OR EXISTS (
        SELECT FROM task
        WHERE task.tenant_id = child.tenant_id AND task.id = child.parent_task_id AND task.state <> 0
      ))
      AND NOT EXISTS (
        SELECT FROM run_timer
        WHERE run_timer.tenant_id = parent.tenant_id AND run_timer.run_id = parent.id AND run_timer.kind = 3)`,
  }),
  check({
    check: "committed events are sent soon",
    severity: "warning",
    advice: "Look whether an outbox-relay runs and its log is reachable: the oldest event waits for over a minute.",
    broken: `
    SELECT 'lane group ' || lane_group FROM outbox
    GROUP BY lane_group HAVING min(at) < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "no run's events are parked",
    severity: "warning",
    advice: "Look at the error of the parked event, mend its cause and release it.",
    broken: `SELECT 'run ' || run_id FROM outbox_parked GROUP BY tenant_id, run_id`,
  }),
];
