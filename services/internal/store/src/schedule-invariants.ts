import { type Check, check } from "./invariant.ts";

/** Of schedules and their ticks. */
export const SCHEDULE_CHECKS: readonly Check[] = [
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
];
