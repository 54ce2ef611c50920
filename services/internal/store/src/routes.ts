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

type NewRoute = Omit<Route, "id">;

/**
 * Makes sure that each route stands and answers them, in no particular order, and whether any is new. New ones take
 * the tenant's row first, so that their ids commit in order: a reader that goes on from the last id it has misses none.
 */
export async function internRoutes(
  db: Db,
  p: { tenantId: number; routes: readonly NewRoute[] },
): Promise<{ routes: Route[]; areNew: boolean }> {
  const known = await findRoutes(db, p);
  if (known.length === p.routes.length) return { routes: known, areNew: false };
  return db.transaction(async (tx) => {
    await tx.rows("lock_tenant", "SELECT id FROM tenant WHERE id = $1 FOR NO KEY UPDATE", [p.tenantId]);
    await tx.rows(
      "intern_routes",
      `
  INSERT INTO route (tenant_id, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)
  SELECT $1, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive
  FROM ${WANTED}
  WHERE NOT EXISTS (
    SELECT FROM route
    WHERE tenant_id = $1 AND route.queue = wanted.queue AND route.handler = wanted.handler
      AND route.requires = wanted.requires AND route.schedule_to_start_ms = wanted.schedule_to_start_ms
      AND route.start_to_close_ms = wanted.start_to_close_ms AND route.heartbeat_ms = wanted.heartbeat_ms
      AND route.exclusive = wanted.exclusive
  )
  ORDER BY 2, 3, 4, 5, 6, 7, 8`,
      routeParams(p),
    );
    return { routes: await findRoutes(tx, p), areNew: true };
  });
}

async function findRoutes(db: Db, p: { tenantId: number; routes: readonly NewRoute[] }): Promise<Route[]> {
  const rows = await db.rows<RouteRow>(
    "find_routes",
    `
  SELECT route.id, queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive
  FROM ${WANTED}
  JOIN route USING (queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)
  WHERE route.tenant_id = $1`,
    routeParams(p),
  );
  return rows.map(fromRow);
}

const WANTED = `unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[])
    AS wanted (queue, handler, requires, schedule_to_start_ms, start_to_close_ms, heartbeat_ms, exclusive)`;

const routeParams = (p: { tenantId: number; routes: readonly NewRoute[] }) => [
  p.tenantId,
  p.routes.map((r) => r.queue),
  p.routes.map((r) => r.handler),
  p.routes.map((r) => r.requires),
  p.routes.map((r) => r.scheduleToStartMs),
  p.routes.map((r) => r.startToCloseMs),
  p.routes.map((r) => r.heartbeatMs),
  p.routes.map((r) => r.exclusive),
];

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
