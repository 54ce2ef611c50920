import type { Db } from "./db.ts";
import { MAX_SIGNALS } from "./signals.ts";

/** A broken invariant of the state. */
export interface Finding {
  readonly check: string;
  readonly severity: "error" | "warning";
  readonly count: number;
  /** At most five, as people would name them. */
  readonly examples: string[];
  readonly advice: string;
}

type Check = (db: Db) => Promise<Finding | undefined>;

interface Invariant {
  readonly check: string;
  readonly severity?: "error" | "warning";
  readonly advice: string;
  /** Rows that break it, each with its name as `example`. */
  readonly broken: string;
}

const check = ({ check, severity = "error", advice, broken }: Invariant): Check => {
  const text = `
  SELECT count(*)::int AS count, coalesce((array_agg(example))[1:5], '{}') AS examples
  FROM (${broken}) AS broken (example)`;
  return async (db) => {
    const { count, examples } = await db.one<{ count: number; examples: string[] }>("", text, []);
    return count === 0 ? undefined : { check, severity, count, examples, advice };
  };
};

/** Where an open task may stand. */
const PLACES = `
    SELECT tenant_id, task_id FROM suspended
    UNION ALL SELECT tenant_id, task_id FROM held
    UNION ALL SELECT tenant_id, task_id FROM scheduled
    UNION ALL SELECT tenant_id, task_id FROM ready
    UNION ALL SELECT tenant_id, task_id FROM lease`;

const SUCCEEDED = `EXISTS (
      SELECT FROM attempt
      WHERE attempt.tenant_id = task.tenant_id AND attempt.task_id = task.id AND attempt.outcome = 1
    )`;

/** Every invariant of the state (G8), each a statement that finds what breaks it. */
export const CHECKS: readonly Check[] = [
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
    check: "a lease is ended soon after its time",
    advice: "Look whether a lease-manager runs: its reaper is behind by more than a minute.",
    broken: `SELECT 'task ' || task_id FROM lease WHERE expires_at < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "a due task is made ready soon after its time",
    advice: "Look whether a scheduler runs: its promoter is behind by more than a minute.",
    broken: `SELECT 'task ' || task_id FROM scheduled WHERE due_at < clock_timestamp() - interval '1 minute'`,
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
  check({
    check: "a due schedule is moved soon after its time",
    advice:
      "Look whether a scheduler runs, and in its log for the schedule: its ticks are behind by more than a minute.",
    broken: `SELECT 'schedule ' || name FROM schedule WHERE next_at < clock_timestamp() - interval '1 minute'`,
  }),
  check({
    check: "a schedule has a next tick unless it is paused",
    advice: "Put the schedule again: nobody will start its runs.",
    broken: `SELECT 'schedule ' || name FROM schedule WHERE paused <> (next_at IS NULL)`,
  }),
  check({
    check: "a schedule has at most 100 buffered ticks, and counts them right",
    advice: "Report it: ticks wait that nobody will start, or more than may.",
    broken: `
    SELECT 'schedule ' || schedule.name FROM schedule
    LEFT JOIN LATERAL (
      SELECT count(*) AS n FROM schedule_tick
      WHERE schedule_tick.tenant_id = schedule.tenant_id AND schedule_tick.schedule_id = schedule.id
        AND schedule_tick.run_id IS NULL
    ) AS buffered ON true
    WHERE schedule.buffered_count <> buffered.n OR buffered.n > 100`,
  }),
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
