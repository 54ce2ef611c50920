import type { Db } from "./db.ts";

export interface TenantRow {
  id: number;
  name: string;
  created_at: Date;
  requests_per_second: number | null;
  starts_per_second: number | null;
  keep_days: number | null;
}

const COLUMNS =
  "tenant.id, tenant.name, tenant.created_at, quota.requests_per_second, quota.starts_per_second, quota.keep_days";
const FROM = "FROM tenant LEFT JOIN tenant_quota AS quota ON quota.tenant_id = tenant.id";

/**
 * Makes a tenant; nothing where the name is taken. The system's own row is locked, so that ids are given one at a
 * time; work that refers to that row goes on.
 */
export const insertTenant = (db: Db, p: { name: string }) =>
  db.transaction(async (tx) => {
    await tx.rows("lock_system_tenant", "SELECT id FROM tenant WHERE id = 1 FOR NO KEY UPDATE", []);
    return tx.find<{ id: number }>(
      "insert_tenant",
      `
  INSERT INTO tenant (id, name)
  SELECT max(id) + 1, $1 FROM tenant
  ON CONFLICT (name) DO NOTHING
  RETURNING id`,
      [p.name],
    );
  });

export const findTenant = (db: Db, p: { name: string }) =>
  db.find<TenantRow>("find_tenant", `SELECT ${COLUMNS} ${FROM} WHERE tenant.name = $1`, [p.name]);

/** By name, ascending, after `afterName`. */
export const listTenants = (db: Db, p: { afterName: string; limit: number }) =>
  db.rows<TenantRow>(
    "list_tenants",
    `
  SELECT ${COLUMNS} ${FROM}
  WHERE tenant.name > $1
  ORDER BY tenant.name
  LIMIT $2`,
    [p.afterName, p.limit],
  );
