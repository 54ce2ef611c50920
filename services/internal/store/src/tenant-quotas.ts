import type { Db } from "./db.ts";

export interface QuotaRow {
  requests_per_second: number | null;
  starts_per_second: number | null;
}

/** What is set for the tenant; null where the mesh's default holds. */
export const findQuota = (db: Db, p: { tenantId: number }) =>
  db.find<QuotaRow>(
    "find_quota",
    "SELECT requests_per_second, starts_per_second FROM tenant_quota WHERE tenant_id = $1",
    [p.tenantId],
  );

export const putQuota = (
  db: Db,
  p: {
    tenantId: number;
    requestsPerSecond: number | undefined;
    startsPerSecond: number | undefined;
    keepDays: number | undefined;
  },
) =>
  db.rows(
    "put_quota",
    `
  INSERT INTO tenant_quota (tenant_id, requests_per_second, starts_per_second, keep_days)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (tenant_id) DO UPDATE
  SET requests_per_second = excluded.requests_per_second, starts_per_second = excluded.starts_per_second,
    keep_days = excluded.keep_days, updated_at = clock_timestamp()`,
    [p.tenantId, p.requestsPerSecond, p.startsPerSecond, p.keepDays],
  );
