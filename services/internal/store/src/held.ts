import type { Db } from "./db.ts";
import type { PlacedTask } from "./places.ts";

const TASK_COLUMNS = "task_id, route_id, rank, attempt, failures, losses";
const OF_RUN = "tenant_id = $1 AND task_id >= $2::bigint << 20 AND task_id < ($2::bigint + 1) << 20";

/** A limited task in ready has a slot. */
const HAS_SLOT = "EXISTS (SELECT FROM slot WHERE slot.tenant_id = $1 AND slot.task_id = ready.task_id)";

/** Says that tasks which wait for a limit wait for the resume now. */
export const holdWaiting = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.rows(
    "hold_waiting",
    `
  UPDATE held SET reason = 1
  WHERE ${OF_RUN} AND reason IN (2, 3)`,
    [p.tenantId, p.runId],
  );

/** Holds what of a run stands in a place, because the run is paused. Schedule-to-start stands still meanwhile. */
export const holdRun = (db: Db, p: { tenantId: number; runId: bigint; place: "scheduled" | "ready" }) =>
  db.rows(
    `hold_run_${p.place}`,
    `
  WITH swept AS (
    DELETE FROM ${p.place}
    WHERE ${OF_RUN}
    RETURNING ${TASK_COLUMNS}, ${p.place === "ready" ? `ready_at AS due_at, ${HAS_SLOT} AS limited` : "due_at, limited"}
  )
  INSERT INTO held (tenant_id, ${TASK_COLUMNS}, reason, due_at, limited)
  SELECT $1, ${TASK_COLUMNS}, 1, due_at, limited FROM swept`,
    [p.tenantId, p.runId],
  );

/**
 * Moves up to `limit` tasks that pausing held on, under the run's lock: due ones to ready, the others to scheduled. Due
 * ones that must pass a limit come back, for the caller to place.
 */
export async function releaseHeld(
  db: Db,
  p: { tenantId: number; runId: bigint; limit: number },
): Promise<{ count: number; routeIds: ReadonlySet<number>; limited: PlacedTask[] }> {
  const row = await db.one<{ count: number; routes: number[] | null; limited: LimitedRow[] | null }>(
    "release_held",
    `
  WITH released AS (
    DELETE FROM held
    WHERE tenant_id = $1 AND task_id = ANY (ARRAY(
      SELECT task_id FROM held WHERE ${OF_RUN} AND reason = 1 ORDER BY task_id LIMIT $3
    ))
    RETURNING ${TASK_COLUMNS}, due_at, due_at <= clock_timestamp() AS is_due,
      greatest(held_at - due_at, interval '0') AS waited, limited
  ), woken AS (
    INSERT INTO ready (tenant_id, ${TASK_COLUMNS}, ready_at)
    SELECT $1, ${TASK_COLUMNS}, clock_timestamp() - waited FROM released WHERE is_due AND NOT limited
    RETURNING route_id
  ), waiting AS (
    INSERT INTO scheduled (tenant_id, ${TASK_COLUMNS}, due_at, limited)
    SELECT $1, ${TASK_COLUMNS}, due_at, limited FROM released WHERE NOT is_due
  )
  SELECT (SELECT count(*)::int FROM released) AS count, (SELECT array_agg(DISTINCT route_id) FROM woken) AS routes,
    (SELECT json_agg(json_build_array(task_id::text, route_id, rank, attempt, failures, losses))
      FROM released WHERE is_due AND limited) AS limited`,
    [p.tenantId, p.runId, p.limit],
  );
  const limited = (row.limited ?? []).map(([taskId, routeId, rank, attempt, failures, losses]) => ({
    taskId: BigInt(taskId),
    routeId,
    rank,
    attempt,
    failures,
    losses,
  }));
  return { count: row.count, routeIds: new Set(row.routes ?? []), limited };
}

type LimitedRow = [taskId: string, routeId: number, rank: number, attempt: number, failures: number, losses: number];

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
