import type { Db } from "./db.ts";

/** A definition without its body. */
export interface DefinitionRow {
  id: bigint;
  workflow_id: number;
  workflow: string;
  /** 0 for an inline definition. */
  version: number;
  content_hash: Buffer;
  task_count: number;
  edge_count: number;
  created_at: Date;
}

const COLUMNS = `definition.id, definition.workflow_id, workflow.name AS workflow, definition.version,
  definition.content_hash, definition.task_count, definition.edge_count, definition.created_at`;

const FROM = `FROM definition
  JOIN workflow ON workflow.tenant_id = definition.tenant_id AND workflow.id = definition.workflow_id`;

/** `is_stale`: a start of it has to say that it is used (unused-definitions.ts). */
export const findDefinitionByHash = (db: Db, p: { tenantId: number; hash: Buffer; inline: boolean }) =>
  db.find<DefinitionRow & { is_stale: boolean }>(
    "find_definition_by_hash",
    `
  SELECT ${COLUMNS}, definition.inline AND definition.used_at < clock_timestamp() - interval '1 hour' AS is_stale
  ${FROM}
  WHERE definition.tenant_id = $1 AND definition.content_hash = $2 AND definition.inline = $3`,
    [p.tenantId, p.hash, p.inline],
  );

/** `version` 0 means the newest. */
export const findDefinition = (db: Db, p: { tenantId: number; workflow: string; version: number }) =>
  db.find<DefinitionRow>(
    "find_definition",
    `
  SELECT ${COLUMNS} ${FROM}
  WHERE workflow.tenant_id = $1 AND workflow.name = $2 AND workflow.latest_version > 0
    AND definition.version = CASE WHEN $3::int = 0 THEN workflow.latest_version ELSE $3::int END
    AND NOT definition.inline`,
    [p.tenantId, p.workflow, p.version],
  );

export const getDefinitionBody = (db: Db, p: { tenantId: number; id: bigint }) =>
  db.find<DefinitionRow & { body: Buffer }>(
    "get_definition_body",
    `
  SELECT ${COLUMNS}, definition.body ${FROM}
  WHERE definition.tenant_id = $1 AND definition.id = $2`,
    [p.tenantId, p.id],
  );

export const insertDefinition = (
  db: Db,
  p: {
    tenantId: number;
    workflowId: number;
    version: number;
    hash: Buffer;
    inline: boolean;
    body: Buffer;
    taskCount: number;
    edgeCount: number;
  },
) =>
  db.find<{ id: bigint; created_at: Date }>(
    "insert_definition",
    `
  INSERT INTO definition (tenant_id, workflow_id, version, content_hash, inline, body, task_count, edge_count)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
  ON CONFLICT (tenant_id, content_hash, inline) DO NOTHING
  RETURNING id, created_at`,
    [p.tenantId, p.workflowId, p.version, p.hash, p.inline, p.body, p.taskCount, p.edgeCount],
  );

/** Newest first, below `beforeVersion`. */
export const listVersions = (
  db: Db,
  p: { tenantId: number; workflowId: number; beforeVersion: number; limit: number },
) =>
  db.rows<DefinitionRow>(
    "list_versions",
    `
  SELECT ${COLUMNS} ${FROM}
  WHERE definition.tenant_id = $1 AND definition.workflow_id = $2 AND NOT definition.inline
    AND definition.version < $3
  ORDER BY definition.version DESC
  LIMIT $4`,
    [p.tenantId, p.workflowId, p.beforeVersion, p.limit],
  );
