import type { Db } from "./db.ts";

/** A DEAD task whose run has failed. */
export interface DeadLetterRow {
  id: bigint;
  definition_id: bigint;
}

export interface DeadLetterPage {
  readonly rows: readonly DeadLetterRow[];
  /** Below which the next page goes on; `undefined` when there is none. */
  readonly next: bigint | undefined;
}

interface ListDeadLetters {
  readonly tenantId: number;
  /** Empty texts ask for all; the error type is the last attempt's. */
  readonly workflow: string;
  readonly errorType: string;
  readonly beforeId: bigint;
  readonly limit: number;
}

/** No index serves workflow and error type: a page looks at so many DEAD tasks at most, and then may be short, or empty. */
const MAX_LOOKED_AT = 20_000;

/** Newest run first. */
export async function listDeadLetterPage(
  db: Db,
  p: ListDeadLetters & { maxLookedAt?: number },
): Promise<DeadLetterPage> {
  const end = await findLastLookedAt(db, { ...p, most: p.maxLookedAt ?? MAX_LOOKED_AT });
  const rows = await listDeadLetters(db, { ...p, limit: p.limit + 1, end: end ?? 0n });
  if (rows.length <= p.limit) return { rows, next: end };
  const page = rows.slice(0, p.limit);
  return { rows: page, next: page.at(-1)!.id };
}

async function findLastLookedAt(
  db: Db,
  p: { tenantId: number; beforeId: bigint; most: number },
): Promise<bigint | undefined> {
  const row = await db.find<{ id: bigint }>(
    "find_last_looked_at",
    `
  SELECT id FROM task
  WHERE tenant_id = $1 AND state = 7 AND id < $2
  ORDER BY id DESC
  LIMIT 1 OFFSET $3`,
    [p.tenantId, p.beforeId, p.most - 1],
  );
  return row?.id;
}

const listDeadLetters = (db: Db, p: ListDeadLetters & { end: bigint }) =>
  db.rows<DeadLetterRow>(
    "list_dead_letters",
    `
  SELECT task.id, run.definition_id
  FROM task
  JOIN run ON run.tenant_id = task.tenant_id AND run.id = task.id >> 20
  JOIN workflow ON workflow.tenant_id = run.tenant_id AND workflow.id = run.workflow_id
  WHERE task.tenant_id = $1 AND task.state = 7 AND task.id < $4 AND task.id >= $6 AND run.state = 5
    AND ($2 = '' OR workflow.name = $2)
    AND ($3 = '' OR $3 = (
      SELECT attempt.error_type FROM attempt
      WHERE attempt.tenant_id = $1 AND attempt.task_id = task.id
      ORDER BY attempt.fence DESC
      LIMIT 1
    ))
  ORDER BY task.id DESC
  LIMIT $5`,
    [p.tenantId, p.workflow, p.errorType, p.beforeId, p.limit, p.end],
  );
