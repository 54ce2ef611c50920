import type { Db } from "./db.ts";

export interface WorkflowRow {
  id: number;
  name: string;
  latest_version: number;
  created_at: Date;
  updated_at: Date;
}

/** Makes sure that the name is known and answers its id. */
export const internWorkflow = (db: Db, p: { tenantId: number; name: string }) =>
  db.one<{ id: number }>(
    "intern_workflow",
    `
  INSERT INTO workflow (tenant_id, name) VALUES ($1, $2)
  ON CONFLICT (tenant_id, name) DO UPDATE SET name = excluded.name
  RETURNING id`,
    [p.tenantId, p.name],
  );

/** Locks the name, so that versions are given one at a time, and answers the newest. */
export const lockWorkflow = (db: Db, p: { tenantId: number; workflowId: number }) =>
  db.one<{ latest_version: number }>(
    "lock_workflow",
    `
  SELECT latest_version FROM workflow
  WHERE tenant_id = $1 AND id = $2
  FOR NO KEY UPDATE`,
    [p.tenantId, p.workflowId],
  );

export const setLatestVersion = (db: Db, p: { tenantId: number; workflowId: number; version: number }) =>
  db.rows(
    "set_latest_version",
    `
  UPDATE workflow SET latest_version = $3, updated_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.workflowId, p.version],
  );

export const findWorkflow = (db: Db, p: { tenantId: number; name: string }) =>
  db.find<WorkflowRow>(
    "find_workflow",
    `
  SELECT id, name, latest_version, created_at, updated_at FROM workflow
  WHERE tenant_id = $1 AND name = $2 AND latest_version > 0`,
    [p.tenantId, p.name],
  );

/** What a name stands for in runs, be it registered or known by inline definitions only. */
export const findWorkflowId = (db: Db, p: { tenantId: number; name: string }) =>
  db.find<{ id: number }>("find_workflow_id", "SELECT id FROM workflow WHERE tenant_id = $1 AND name = $2", [
    p.tenantId,
    p.name,
  ]);

/** By name, ascending, after `afterName`; names known by inline definitions only are left out. */
export const listWorkflows = (db: Db, p: { tenantId: number; prefix: string; afterName: string; limit: number }) =>
  db.rows<WorkflowRow>(
    "list_workflows",
    `
  SELECT id, name, latest_version, created_at, updated_at FROM workflow
  WHERE tenant_id = $1 AND latest_version > 0 AND name > $3 AND starts_with(name, $2)
  ORDER BY name
  LIMIT $4`,
    [p.tenantId, p.prefix, p.afterName, p.limit],
  );
