import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { FROM_RUN, RUN_COLUMNS, type RunRow } from "./runs.ts";
import { findWorkflowId } from "./workflows.ts";

export interface RunFilter {
  readonly states: readonly number[];
  readonly workflow: string;
  readonly version: number;
  readonly createdAfter: Date | undefined;
  readonly createdBefore: Date | undefined;
  readonly labels: Readonly<Record<string, string>>;
  readonly parentRunId: bigint;
  readonly idempotencyKey: string;
}

/** The index by workflow has this predicate. */
export const OF_WORKFLOW = (column: string, at: string) => `${column} > 0 AND ${column} = ${at}`;

export interface ListRuns {
  readonly tenantId: number;
  readonly filter: RunFilter;
  /** The last id of the page before. */
  readonly after: bigint | undefined;
  readonly limit: number;
  readonly newestFirst: boolean;
}

interface Bounds {
  readonly end?: bigint | undefined;
  /** Only these. */
  readonly ids?: readonly bigint[];
}

/** Runs by id, which rises with their creation, up to `end`. */
export const listRuns = (db: Db, p: ListRuns & Bounds): Promise<RunRow[]> => select<RunRow>(db, RUN_COLUMNS, p);

/** A run, and its last move. */
export interface RunKey {
  readonly id: bigint;
  readonly sequence: number;
}

/** As `listRuns`, for who knows most of them. */
export const listRunKeys = (db: Db, p: ListRuns & Bounds): Promise<RunKey[]> =>
  select<RunKey>(db, "run.id, run.sequence", p);

async function select<T>(db: Db, columns: string, p: ListRuns & Bounds): Promise<T[]> {
  const { filter } = p;
  const params: unknown[] = [p.tenantId, p.limit];
  const conditions = ["run.tenant_id = $1"];
  const add = (condition: (place: string) => string, value: unknown) => {
    params.push(value);
    conditions.push(condition(`$${params.length}`));
  };
  if (filter.states.length > 0) add((at) => `run.state = ANY (${at}::smallint[])`, filter.states);
  if (filter.workflow !== "") {
    // Looked up first, as the plan depends on how many runs it has: by its name, a rare one would be sought among all.
    const found = await findWorkflowId(db, { tenantId: p.tenantId, name: filter.workflow });
    if (found === undefined) return [];
    add((at) => OF_WORKFLOW(`run.workflow_id`, at), found.id);
  }
  if (filter.version > 0) add((at) => `definition.version = ${at}::bigint`, filter.version);
  if (filter.createdAfter !== undefined) add((at) => `run.created_at > ${at}`, filter.createdAfter);
  if (filter.createdBefore !== undefined) add((at) => `run.created_at < ${at}`, filter.createdBefore);
  if (Object.keys(filter.labels).length > 0) add((at) => `run.labels @> ${at}::jsonb`, JSON.stringify(filter.labels));
  if (filter.parentRunId > 0n) add((at) => `run.parent_run_id = ${at}`, filter.parentRunId);
  if (filter.idempotencyKey !== "") add((at) => `run.idempotency_key = ${at}`, filter.idempotencyKey);
  if (p.after !== undefined) add((at) => `run.id ${p.newestFirst ? "<" : ">"} ${at}`, p.after);
  if (p.ids !== undefined) add((at) => `run.id = ANY (${at}::bigint[])`, int8Array(p.ids));
  if (p.end !== undefined) add((at) => `run.id ${p.newestFirst ? ">=" : "<="} ${at}`, p.end);
  const text = `SELECT ${columns} ${FROM_RUN}
  WHERE ${conditions.join("\n    AND ")}
  ORDER BY run.id ${p.newestFirst ? "DESC" : "ASC"}
  LIMIT $2`;
  return db.rows<T>("", text, params);
}
