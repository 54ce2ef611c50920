import type { Db } from "./db.ts";

/** Notes who did what to what. Starts are audited by the run's row, workers' calls by their attempts. */
export const insertAudit = (
  db: Db,
  p: { tenantId: number; principal: string; action: string; target: string; result: string },
) =>
  db.rows(
    "insert_audit",
    `
  INSERT INTO audit (tenant_id, principal, action, target, result)
  VALUES ($1, $2, $3, $4, $5)`,
    [p.tenantId, p.principal, p.action, p.target, p.result],
  );
