/**
 * The files of services/internal/store/src that write each table. Any file there may read any table; a write from a file
 * that is not named here is either in the wrong file or belongs in this list and in ARCHITECTURE.md.
 */
export const TABLE_WRITERS: Readonly<Record<string, readonly string[]>> = {
  api_key: ["api-keys"],
  api_key_secret: ["api-keys"],
  attempt: ["attempts", "complete-leases", "release-leases", "retention"],
  attempt_log: ["attempt-logs", "retention"],
  audit: ["audit"],
  bus_message: ["bus-messages"],
  bus_subscription: ["bus-messages"],
  definition: ["definitions"],
  duty: ["bus-messages", "duties"],
  held: ["held", "places", "release-leases", "slots"],
  lane_group: ["lane-groups"],
  lease: ["complete-leases", "leases", "lock-leases", "ready", "release-leases"],
  outbox: ["complete-leases", "outbox", "outbox-parked", "outbox-write", "start-runs"],
  outbox_parked: ["outbox-parked"],
  ready: ["complete-leases", "held", "overdue-starts", "places", "ready", "release-leases", "slots", "start-runs"],
  removed_run: ["partitions", "retention"],
  request: ["requests"],
  route: ["routes"],
  run: ["complete-leases", "reruns", "retention", "runs", "start-runs"],
  run_event: ["outbox-write", "retention"],
  run_slot: ["complete-limited", "run-slots"],
  run_timer: ["run-timers", "runs", "start-runs", "stray-children"],
  schedule: ["schedules"],
  schedule_tick: ["schedule-ticks"],
  scheduled: ["held", "places"],
  session: ["retention", "sessions"],
  setting: ["settings"],
  signal: ["retention", "signals"],
  slot: ["release-leases", "slots"],
  start_key: ["retention", "start-runs"],
  step: ["retention", "steps"],
  suspended: ["places", "suspended"],
  task: ["complete-leases", "retention", "start-runs", "tasks"],
  tenant: ["tenants"],
  tenant_quota: ["tenant-quotas"],
  workflow: ["workflows"],
};

/** The places a waiting task may stand in: two files name them by parameter. */
export const PLACES = ["suspended", "held", "scheduled", "ready"];
