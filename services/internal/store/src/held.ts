import type { Db } from "./db.ts";

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";
const OF_RUN = "tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20";

/** Holds what of a run stands in a place, because the run is paused. Schedule-to-start stands still meanwhile. */
export const holdRun = (db: Db, p: { tenantId: number; runId: bigint; place: "scheduled" | "ready" }) =>
  db.rows(
    `hold_run_${p.place}`,
    `
  WITH swept AS (
    DELETE FROM ${p.place}
    WHERE ${OF_RUN}
    RETURNING ${TASK_COLUMNS}, ${p.place === "ready" ? "ready_at" : "due_at"} AS due_at
  )
  INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at)
  SELECT $1, ${TASK_COLUMNS}, 1, due_at FROM swept`,
    [p.tenantId, p.runId],
  );

/** Moves up to `limit` tasks that pausing held on, under the run's lock: due ones to ready, the others to scheduled. */
export async function releaseHeld(
  db: Db,
  p: { tenantId: number; runId: bigint; limit: number },
): Promise<{ count: number; routeIds: ReadonlySet<number> }> {
  const row = await db.one<{ count: number; routes: number[] | null }>(
    "release_held",
    `
  WITH released AS (
    DELETE FROM held
    WHERE tenant_id = $1 AND task_id = ANY (ARRAY(
      SELECT task_id FROM held WHERE ${OF_RUN} AND reason = 1 ORDER BY task_id LIMIT $3
    ))
    RETURNING ${TASK_COLUMNS}, due_at, due_at <= clock_timestamp() AS is_due,
      greatest(held_at - due_at, interval '0') AS waited
  ), woken AS (
    INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
    SELECT $1, ${TASK_COLUMNS}, clock_timestamp() - waited FROM released WHERE is_due
    RETURNING route_id
  ), waiting AS (
    INSERT INTO scheduled (tenant_id, ${TASK_COLUMNS}, due_at)
    SELECT $1, ${TASK_COLUMNS}, due_at FROM released WHERE NOT is_due
  )
  SELECT (SELECT count(*)::int FROM released) AS count, (SELECT array_agg(DISTINCT route_id) FROM woken) AS routes`,
    [p.tenantId, p.runId, p.limit],
  );
  return { count: row.count, routeIds: new Set(row.routes ?? []) };
}

/** Running runs whose resume was cut off: tasks are still held because they were paused. */
export const listHalfResumed = (db: Db, p: { limit: number }) =>
  db.rows<{ tenant_id: number; run_id: bigint }>(
    "list_half_resumed",
    `
  SELECT DISTINCT held.tenant_id, held.task_id >> 20 AS run_id
  FROM held
  JOIN run ON run.tenant_id = held.tenant_id AND run.id = held.task_id >> 20
  WHERE held.reason = 1 AND run.state = 2
  LIMIT $1`,
    [p.limit],
  );
