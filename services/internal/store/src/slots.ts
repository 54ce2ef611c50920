import { int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import type { TaskLimits } from "./limits.ts";
import type { PlacedTask } from "./places.ts";

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";

/** Places tasks before their limits: they are held until they are admitted. */
export const insertWaiting = (db: Db, p: { tenantId: number; tasks: readonly (PlacedTask & TaskLimits)[] }) =>
  db.rows(
    "insert_waiting",
    `
  INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at, limited, concurrency_key, slot_limit, run_limit)
  SELECT $1, ${TASK_COLUMNS}, CASE WHEN slot_limit > 0 THEN 2 ELSE 3 END, clock_timestamp(), true, concurrency_key,
    slot_limit, run_limit
  FROM unnest($2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::int[], $7::int[], $8::text[], $9::int[], $10::int[])
    AS task (${TASK_COLUMNS}, concurrency_key, slot_limit, run_limit)`,
    [
      p.tenantId,
      int8Array(p.tasks.map((task) => task.taskId)),
      int4Array(p.tasks.map((task) => task.routeId)),
      int2Array(p.tasks.map((task) => task.rank)),
      int4Array(p.tasks.map((task) => task.attempt)),
      int4Array(p.tasks.map((task) => task.failures)),
      int4Array(p.tasks.map((task) => task.losses)),
      p.tasks.map((task) => task.key ?? null),
      int4Array(p.tasks.map((task) => task.slotLimit)),
      int4Array(p.tasks.map((task) => task.runLimit)),
    ],
  );

/** Frees the slots of tasks and answers their keys. */
export const freeSlots = async (db: Db, p: { tenantId: number; taskIds: readonly bigint[] }): Promise<string[]> => {
  const rows = await db.rows<{ key: string }>(
    "free_slots",
    `
  DELETE FROM slot
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
  RETURNING key`,
    [p.tenantId, int8Array(p.taskIds)],
  );
  return rows.map((row) => row.key);
};

/** Frees every slot of a run. */
export const freeRunSlots = async (db: Db, p: { tenantId: number; runId: bigint }): Promise<string[]> => {
  const rows = await db.rows<{ key: string }>(
    "free_run_slots",
    `
  DELETE FROM slot
  WHERE tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20
  RETURNING key`,
    [p.tenantId, p.runId],
  );
  return rows.map((row) => row.key);
};

/** Frees the slots of a run's tasks that no lease holds: what a pause takes out of ready. */
export const freeUnleasedSlots = async (db: Db, p: { tenantId: number; runId: bigint }): Promise<string[]> => {
  const rows = await db.rows<{ key: string }>(
    "free_unleased_slots",
    `
  DELETE FROM slot
  WHERE tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20
    AND NOT EXISTS (SELECT FROM lease WHERE lease.tenant_id = $1 AND lease.task_id = slot.task_id)
  RETURNING key`,
    [p.tenantId, p.runId],
  );
  return rows.map((row) => row.key);
};

export const countSlots = async (
  db: Db,
  p: { tenantId: number; keys: readonly string[] },
): Promise<Map<string, number>> => {
  const rows = await db.rows<{ key: string; count: number }>(
    "count_slots",
    `
  SELECT wanted.key, (
    SELECT count(*)::int FROM slot WHERE slot.tenant_id = $1 AND slot.key = wanted.key
  ) AS count
  FROM unnest($2::text[]) AS wanted (key)`,
    [p.tenantId, p.keys],
  );
  return new Map(rows.map((row) => [row.key, row.count]));
};

export interface Candidate {
  task_id: bigint;
  concurrency_key: string | null;
  slot_limit: number;
  run_limit: number;
}

/** Whether a limit, if the task has it, had room: what another limit holds up must not hide those behind it. */
const hasRoom = (limit: string, key: string) =>
  `(${limit} = 0 OR ${limit} > coalesce((SELECT used FROM slot_count WHERE tenant_id = $1 AND key = ${key}), 0))`;

/**
 * Held tasks that wait for any of some keys, of each the best first; rows that a sweep or another admission holds are
 * passed over, and those for which the other of their limits has no room. A task that waits for two of them comes twice.
 */
export const listCandidates = (db: Db, p: { tenantId: number; keys: readonly string[]; limit: number }) =>
  db.rows<Candidate>(
    "list_candidates",
    `
  SELECT task_id, concurrency_key, slot_limit, run_limit
  FROM unnest($2::text[]) AS wanted (key)
  CROSS JOIN LATERAL (
    SELECT task_id, concurrency_key, slot_limit, run_limit FROM held
    WHERE tenant_id = $1 AND concurrency_key = wanted.key AND reason IN (2, 3)
      AND ${hasRoom("run_limit", "'r:' || (held.task_id >> 20)")}
    ORDER BY rank, held_at
    LIMIT $3
    OFFSET 0
    FOR UPDATE SKIP LOCKED
  ) AS waiting`,
    [p.tenantId, p.keys, p.limit],
  );

export const listRunCandidates = (db: Db, p: { tenantId: number; runIds: readonly bigint[]; limit: number }) =>
  db.rows<Candidate>(
    "list_run_candidates",
    `
  SELECT task_id, concurrency_key, slot_limit, run_limit
  FROM unnest($2::bigint[]) AS wanted (run_id)
  CROSS JOIN LATERAL (
    SELECT task_id, concurrency_key, slot_limit, run_limit FROM held
    WHERE tenant_id = $1 AND task_id >= wanted.run_id << 20 AND task_id < (wanted.run_id + 1) << 20
      AND reason IN (2, 3) AND ${hasRoom("slot_limit", "'k:' || held.concurrency_key")}
    ORDER BY rank, held_at
    LIMIT $3
    OFFSET 0
    FOR UPDATE SKIP LOCKED
  ) AS waiting`,
    [p.tenantId, int8Array(p.runIds), p.limit],
  );

/** Moves held tasks, which are locked, to ready with the slots they take. */
export const admitTasks = (
  db: Db,
  p: { tenantId: number; taskIds: readonly bigint[]; slots: readonly { key: string; taskId: bigint }[] },
) =>
  db.rows<{ route_id: number }>(
    "admit_tasks",
    `
  WITH taken AS (
    INSERT INTO slot (tenant_id, key, task_id)
    SELECT $1, key, task_id FROM unnest($3::text[], $4::bigint[]) AS slot (key, task_id)
    ON CONFLICT DO NOTHING
  ), admitted AS (
    DELETE FROM held
    WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[])
    RETURNING ${TASK_COLUMNS}
  )
  INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
  SELECT $1, ${TASK_COLUMNS}, clock_timestamp() FROM admitted
  RETURNING route_id`,
    [p.tenantId, int8Array(p.taskIds), p.slots.map((slot) => slot.key), int8Array(p.slots.map((slot) => slot.taskId))],
  );

/** Says for which limit a task waits that was looked at and not admitted. */
export const setHeldReason = (db: Db, p: { tenantId: number; taskIds: readonly bigint[]; reason: number }) =>
  db.rows(
    "set_held_reason",
    `
  UPDATE held SET reason = $3
  WHERE tenant_id = $1 AND task_id = ANY ($2::bigint[]) AND reason <> $3`,
    [p.tenantId, int8Array(p.taskIds), p.reason],
  );
