import type { Db } from "./db.ts";

/** All that a lease statement must know of a task's definition, interned. */
export interface Route {
  readonly id: number;
  readonly queue: string;
  readonly handler: string;
  /** Sorted, joined by a space. */
  readonly requires: string;
  readonly scheduleToStartMs: number;
  readonly startToCloseMs: number;
  readonly heartbeatMs: number;
  readonly exclusive: boolean;
}

interface RouteRow {
  id: number;
  queue: string;
  handler: string;
  requires: string;
  schedule_to_start_ms: bigint;
  start_to_close_ms: bigint;
  heartbeat_ms: bigint;
  exclusive: boolean;
}

const COLUMNS = "id, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive";

const fromRow = (row: RouteRow): Route => ({
  id: row.id,
  queue: row.queue,
  handler: row.handler,
  requires: row.requires,
  scheduleToStartMs: Number(row.schedule_to_start_ms),
  startToCloseMs: Number(row.start_to_close_ms),
  heartbeatMs: Number(row.heartbeat_ms),
  exclusive: row.exclusive,
});

/** Makes sure that each route stands and answers them, in no particular order. */
export async function internRoutes(
  db: Db,
  p: { tenantId: number; routes: readonly Omit<Route, "id">[] },
): Promise<Route[]> {
  const columns = [
    p.routes.map((r) => r.queue),
    p.routes.map((r) => r.handler),
    p.routes.map((r) => r.requires),
    p.routes.map((r) => r.scheduleToStartMs),
    p.routes.map((r) => r.startToCloseMs),
    p.routes.map((r) => r.heartbeatMs),
    p.routes.map((r) => r.exclusive),
  ];
  const wanted = `unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[])
    AS wanted (queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)`;
  await db.rows(
    "intern_routes",
    `
  INSERT INTO route (tenant_id, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)
  SELECT $1, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive
  FROM ${wanted}
  ORDER BY 2, 3, 4, 5, 6, 7, 8
  ON CONFLICT DO NOTHING`,
    [p.tenantId, ...columns],
  );
  const rows = await db.rows<RouteRow>(
    "find_routes",
    `
  SELECT route.id, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive
  FROM ${wanted}
  JOIN route USING (queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)
  WHERE route.tenant_id = $1`,
    [p.tenantId, ...columns],
  );
  return rows.map(fromRow);
}

/** The tenant's routes above `afterId`, ascending: a reader keeps its list up to date by the last id it has. */
export async function listRoutes(db: Db, p: { tenantId: number; afterId: number; limit: number }): Promise<Route[]> {
  const rows = await db.rows<RouteRow>(
    "list_routes",
    `
  SELECT ${COLUMNS} FROM route
  WHERE tenant_id = $1 AND id > $2
  ORDER BY id
  LIMIT $3`,
    [p.tenantId, p.afterId, p.limit],
  );
  return rows.map(fromRow);
}
