import type { Db } from "./db.ts";

export interface StartKeyRow {
  workflow_id: number;
  digest: string;
  run_id: bigint;
  body_hash: string;
  /** Of the run's definition; null where retention has removed the run. */
  version: number | null;
}

/** Who has each key. */
export const findStartKeys = (
  db: Db,
  p: { tenantId: number; workflowIds: readonly number[]; digests: readonly string[] },
) =>
  db.rows<StartKeyRow>(
    "find_start_keys",
    `
  SELECT start_key.workflow_id, start_key.digest, start_key.run_id, start_key.body_hash, definition.version
  FROM unnest($2::int[], $3::uuid[]) AS wanted (workflow_id, digest)
  CROSS JOIN LATERAL (
    SELECT workflow_id, digest, run_id, body_hash FROM start_key
    WHERE tenant_id = $1 AND workflow_id = wanted.workflow_id AND digest = wanted.digest
    OFFSET 0
  ) AS start_key
  LEFT JOIN LATERAL (SELECT definition_id FROM run WHERE tenant_id = $1 AND id = start_key.run_id OFFSET 0) AS run ON true
  LEFT JOIN definition ON definition.tenant_id = $1 AND definition.id = run.definition_id`,
    [p.tenantId, p.workflowIds, p.digests],
  );

/** What a run was started with. */
export const findStartBody = (db: Db, p: { tenantId: number; runId: bigint }) =>
  db.find<{ input: Buffer | null; labels: Record<string, string>; due_at: Date | null }>(
    "find_start_body",
    `
  SELECT input, labels, due_at FROM run
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId],
  );
