import type { Db } from "./db.ts";
import { type ListRuns, listRunKeys, listRuns, OF_WORKFLOW, type RunFilter, type RunKey } from "./list-runs.ts";
import type { RunRow } from "./runs.ts";
import { findWorkflowId } from "./workflows.ts";

/**
 * Pages of runs. No index serves states, labels and the like: one on a column that changes when a run ends would cost
 * each run's end all of its indexes anew. So a page looks at a number of runs at most, and then may be short, or empty,
 * and is followed by another all the same.
 */
const MAX_LOOKED_AT = 20_000;

export interface RunPage<T = RunRow> {
  readonly rows: readonly T[];
  /** Where the next page goes on after; `undefined` when there is none. */
  readonly next: bigint | undefined;
}

type Ask = ListRuns & { readonly maxLookedAt?: number };

export const listRunPage = (db: Db, p: Ask): Promise<RunPage> => listPage(db, p, listRuns);

/** As `listRunPage`, for who knows most of the runs. */
export const listRunKeyPage = (db: Db, p: Ask): Promise<RunPage<RunKey>> => listPage(db, p, listRunKeys);

async function listPage<T extends RunKey>(
  db: Db,
  p: Ask,
  list: (db: Db, p: ListRuns & { end: bigint | undefined }) => Promise<T[]>,
): Promise<RunPage<T>> {
  const end = isSifted(p.filter) ? await findEnd(db, p, p.maxLookedAt ?? MAX_LOOKED_AT) : undefined;
  const rows = await list(db, { ...p, limit: p.limit + 1, end });
  if (rows.length <= p.limit) return { rows, next: end };
  const page = rows.slice(0, p.limit);
  return { rows: page, next: page.at(-1)!.id };
}

/** What the indexes of runs, by id, workflow and parent, do not find at once. */
const isSifted = (filter: RunFilter): boolean =>
  filter.states.length > 0 ||
  filter.version > 0 ||
  filter.createdAfter !== undefined ||
  filter.createdBefore !== undefined ||
  filter.idempotencyKey !== "" ||
  Object.keys(filter.labels).length > 0;

/** The id of the last run that a page looks at; none where there are fewer. */
async function findEnd(db: Db, p: ListRuns, maxLookedAt: number): Promise<bigint | undefined> {
  const { filter, newestFirst } = p;
  const params: unknown[] = [p.tenantId, maxLookedAt - 1];
  const conditions = ["tenant_id = $1"];
  const add = (condition: (place: string) => string, value: unknown) => {
    params.push(value);
    conditions.push(condition(`$${params.length}`));
  };
  if (filter.workflow !== "") {
    const found = await findWorkflowId(db, { tenantId: p.tenantId, name: filter.workflow });
    if (found === undefined) return undefined;
    add((at) => OF_WORKFLOW("workflow_id", at), found.id);
  }
  if (filter.parentRunId > 0n) add((at) => `parent_run_id = ${at}`, filter.parentRunId);
  if (p.after !== undefined) add((at) => `id ${newestFirst ? "<" : ">"} ${at}`, p.after);
  const row = await db.find<{ id: bigint }>(
    "",
    `
  SELECT id FROM run
  WHERE ${conditions.join("\n    AND ")}
  ORDER BY id ${newestFirst ? "DESC" : "ASC"}
  LIMIT 1 OFFSET $2`,
    params,
  );
  return row?.id;
}
