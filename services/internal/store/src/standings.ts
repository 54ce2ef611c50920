import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** Where an open task stands. What belongs to another place is null. */
export interface StandingRow {
  task_id: bigint;
  place: "lease" | "ready" | "held" | "scheduled" | "suspended";
  /** Since when it stands there; of `scheduled`, until when. */
  at: Date;
  /** Of `held`: 1 paused, 2 concurrency key, 3 max_parallel. */
  reason: number | null;
  concurrency_key: string | null;
  slot_limit: number | null;
  run_limit: number | null;
  /** Of `suspended`. */
  wake_at: Date | null;
  signal: string | null;
  child_run_id: bigint | null;
}

const NOT_HELD =
  "NULL::smallint AS reason, NULL::text AS concurrency_key, NULL::int AS slot_limit, NULL::int AS run_limit";
const NOT_SUSPENDED = "NULL::timestamptz AS wake_at, NULL::text AS signal, NULL::bigint AS child_run_id";
const SIGNAL = "CASE WHEN waits_for = 2 THEN name END";

/** The places, nearest to running first. `where` is a condition on each; `one` takes the first of each. */
const places = (where: string, one: boolean) => {
  const first = (order: string) => (one ? `ORDER BY ${order} LIMIT 1` : "");
  return `
    (SELECT 1 AS nearness, task_id, 'lease' AS place, leased_at AS at, ${NOT_HELD}, ${NOT_SUSPENDED}
      FROM lease WHERE ${where} ${first("task_id")})
    UNION ALL
    (SELECT 2, task_id, 'ready', ready_at, ${NOT_HELD}, ${NOT_SUSPENDED}
      FROM ready WHERE ${where} ${first("rank, ready_at")})
    UNION ALL
    (SELECT 3, task_id, 'held', held_at, reason, concurrency_key, slot_limit, run_limit, ${NOT_SUSPENDED}
      FROM held WHERE ${where} ${first("rank, held_at")})
    UNION ALL
    (SELECT 4, task_id, 'scheduled', due_at, ${NOT_HELD}, ${NOT_SUSPENDED}
      FROM scheduled WHERE ${where} ${first("due_at")})
    UNION ALL
    (SELECT 5, task_id, 'suspended', suspended_at, ${NOT_HELD}, wake_at, ${SIGNAL}, child_run_id
      FROM suspended WHERE ${where} ${first("wake_at NULLS LAST, task_id")})`;
};

const COLUMNS = "task_id, place, at, reason, concurrency_key, slot_limit, run_limit, wake_at, signal, child_run_id";

/** Where each of these tasks stands; those that stand nowhere are left out. Each is looked up by its key. */
export const listStandings = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<StandingRow>(
    "list_standings",
    `
  SELECT stands.${COLUMNS.replaceAll(", ", ", stands.")}
  FROM unnest($2::bigint[]) AS wanted (id)
  CROSS JOIN LATERAL (${places("tenant_id = $1 AND task_id = wanted.id", false)}
    OFFSET 0
  ) AS stands`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** The task of a run that is nearest to running: leased, or the best of those that wait. */
export const findNearestStanding = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<StandingRow>(
    "find_nearest_standing",
    `
  SELECT ${COLUMNS}
  FROM (${places("tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20", true)}
  ) AS stands
  ORDER BY nearness
  LIMIT 1`,
    [p.tenantId, p.runId],
  );

/** Those of these tasks that have not ended. */
export const listOpenTasks = (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }) =>
  db.rows<{ id: bigint }>(
    "list_open_tasks",
    `
  SELECT wanted.id
  FROM unnest($2::bigint[]) AS wanted (id)
  CROSS JOIN LATERAL (
    SELECT state FROM task WHERE task.tenant_id = $1 AND task.id = wanted.id OFFSET 0
  ) AS task
  WHERE task.state = 0
    AND NOT EXISTS (
      SELECT FROM attempt WHERE attempt.tenant_id = $1 AND attempt.task_id = wanted.id AND attempt.outcome = 1)`,
    [p.tenantId, int8Array(p.taskIds)],
  );

/** How many slots of each key are taken, and the `most` that are taken the longest. */
export const listSlotHolders = (db: Db, p: { tenantId: number; keys: readonly string[]; most: number }) =>
  db.rows<{ key: string; count: number; task_ids: bigint[] }>(
    "list_slot_holders",
    `
  SELECT wanted.key,
    (SELECT count(*)::int FROM slot WHERE slot.tenant_id = $1 AND slot.key = wanted.key) AS count,
    ARRAY(
      SELECT slot.task_id FROM slot
      WHERE slot.tenant_id = $1 AND slot.key = wanted.key
      ORDER BY slot.taken_at, slot.task_id
      LIMIT $3
    ) AS task_ids
  FROM unnest($2::text[]) AS wanted (key)`,
    [p.tenantId, p.keys, p.most],
  );

/**
 * The limit that a run waits for: who has it, and its place among those that wait and are due, 10,000 at most. `is_due`:
 * it waits for room, and not for its time.
 */
export const findAwaitedRunLimit = (db: Db, p: { tenantId: number; runId: bigint; most: number }) =>
  db.find<{
    key: string;
    slot_limit: number;
    count: number;
    run_ids: bigint[];
    position: number;
    is_due: boolean;
  }>(
    "find_awaited_run_limit",
    `
  SELECT own.key, own.slot_limit,
    (SELECT count(*)::int FROM run_slot WHERE tenant_id = $1 AND key = own.key AND active) AS count,
    ARRAY(
      SELECT run_id FROM run_slot WHERE tenant_id = $1 AND key = own.key AND active ORDER BY run_id LIMIT $3
    ) AS run_ids,
    (
      SELECT count(*)::int
      FROM (
        SELECT FROM run_slot
        WHERE tenant_id = $1 AND key = own.key AND NOT active AND run_id <= $2 AND (due_at IS NULL OR run_id = $2)
        LIMIT 10000
      ) AS before
    ) AS position,
    coalesce((SELECT due_at <= clock_timestamp() FROM run WHERE tenant_id = $1 AND id = $2), true) AS is_due
  FROM run_slot AS own
  WHERE own.tenant_id = $1 AND own.run_id = $2 AND NOT own.active
  LIMIT 1`,
    [p.tenantId, p.runId, p.most],
  );

/** When a run was paused last. */
export const findPauseTime = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<{ at: Date }>(
    "find_pause_time",
    `
  SELECT at FROM run_event
  WHERE tenant_id = $1 AND run_id = $2 AND type = 3
  ORDER BY sequence DESC
  LIMIT 1`,
    [p.tenantId, p.runId],
  );
