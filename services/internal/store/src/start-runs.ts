import { int2Array, int4Array, int8Array, textArray, uuidArray } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { packEvents } from "./outbox-packs.ts";
import { violatedConstraint } from "./store-errors.ts";

/** A run to be started, its definition known and its input checked. */
export interface NewRun {
  readonly runId: bigint;
  readonly definitionId: bigint;
  readonly workflowId: number;
  readonly taskCount: number;
  /** Digest of the idempotency key or request id. */
  readonly digest: string;
  readonly bodyHash: string;
  readonly input: Buffer | undefined;
  readonly labels: string;
  readonly idempotencyKey: string | undefined;
  /** Milliseconds since 1970; 0 starts it now. */
  readonly dueAtMs: number;
  readonly deadlineMs: number;
  readonly maxParallel: number;
  readonly traceparent: string | undefined;
  /** Of each task by ordinal: dependencies it waits for. */
  readonly pending: Int32Array;
  /** Ordinals that are ready at once. */
  readonly roots: readonly number[];
  /** It is PENDING until the limit that it shares with other runs lets it begin. */
  readonly waits: boolean;
  /** Of each task by ordinal. */
  readonly routeIds: Int32Array;
  readonly ranks: Int16Array;
}

interface Start {
  readonly tenantId: number;
  readonly principal: string;
  /** In ascending order of id. */
  readonly runs: readonly NewRun[];
}

/**
 * Starts runs with their tasks, first ready tasks and first events, in one statement (G2, G6).
 * Answers the ids of those started; the others had their key taken, by an earlier start or by a twin in this batch.
 */
export const startRuns = (db: Db, p: Start): Promise<Set<bigint>> => start(db, "start_runs", START_RUNS, p);

/**
 * The same outside of a transaction. It looks for taken keys before it inserts, which is cheaper than to insert each on
 * condition; a key that is taken in between, or twice in the batch, fails the statement, which is then made anew.
 */
export async function startFreshRuns(db: Db, p: Start): Promise<Set<bigint>> {
  try {
    return await start(db, "start_fresh_runs", START_FRESH_RUNS, p);
  } catch (error) {
    if (violatedConstraint(error) !== "start_key_pkey") throw error;
    return startRuns(db, p);
  }
}

async function start(db: Db, name: string, text: string, p: Start): Promise<Set<bigint>> {
  const { runs } = p;
  const taskTotal = runs.reduce((sum, run) => sum + run.taskCount, 0);
  const taskIds = new BigInt64Array(taskTotal);
  const pending = new Int32Array(taskTotal);
  const rootIds: bigint[] = [];
  const rootRoutes: number[] = [];
  const rootRanks: number[] = [];
  let at = 0;
  for (const run of runs) {
    const base = run.runId << 20n;
    pending.set(run.pending, at);
    for (let ordinal = 0; ordinal < run.taskCount; ordinal++) taskIds[at++] = base | BigInt(ordinal);
    if (run.dueAtMs > 0) continue;
    for (const ordinal of run.roots) {
      rootIds.push(base | BigInt(ordinal));
      rootRoutes.push(run.routeIds[ordinal]!);
      rootRanks.push(run.ranks[ordinal]!);
    }
  }
  const empty = Buffer.alloc(0);
  const inputs = runs.map((run) => run.input ?? empty);
  const { started } = await db.one<{ started: string | null }>(name, text, [
    p.tenantId,
    p.principal,
    int8Array(runs.map((run) => run.runId)),
    int8Array(runs.map((run) => run.definitionId)),
    int4Array(runs.map((run) => run.workflowId)),
    int4Array(runs.map((run) => run.taskCount)),
    uuidArray(runs.map((run) => run.digest)),
    uuidArray(runs.map((run) => run.bodyHash)),
    Buffer.concat(inputs),
    int4Array(offsets(inputs)),
    int4Array(runs.map((run) => run.input?.length ?? -1)),
    textArray(runs.map((run) => run.labels)),
    textArray(runs.map((run) => run.idempotencyKey)),
    int8Array(runs.map((run) => BigInt(run.dueAtMs))),
    int8Array(runs.map((run) => BigInt(run.deadlineMs))),
    int4Array(runs.map((run) => run.maxParallel)),
    textArray(runs.map((run) => run.traceparent)),
    int8Array(taskIds),
    int4Array(pending),
    int8Array(rootIds),
    int4Array(rootRoutes),
    int2Array(rootRanks),
    runs.map((run) => run.waits),
    int4Array(packEvents(runs.map((run) => run.runId))),
  ]);
  return new Set(started === null ? [] : started.slice(1, -1).split(",").map(BigInt));
}

function offsets(parts: readonly Buffer[]): number[] {
  let at = 1;
  return parts.map((part) => {
    const from = at;
    at += part.length;
    return from;
  });
}

/** `fresh.ids[width_bucket(x, fresh.ids)] = x` is a binary search for x: two CTEs are never joined. */
const isFresh = (id: string) => `((SELECT ids FROM fresh))[width_bucket(${id}, (SELECT ids FROM fresh))] = ${id}`;

/** Keys are taken in one order, so that batches with the same ones do not wait for each other crosswise. */
const startText = ({ where = "", onConflict = "" }: { where?: string; onConflict?: string }): string => `
  WITH item AS MATERIALIZED (
    SELECT run_id, definition_id, workflow_id, task_count, digest, body_hash, input_at, input_size, labels, key,
      CASE WHEN due_ms > 0 THEN to_timestamp(due_ms / 1000.0) END AS due_at, deadline_ms, max_parallel, traceparent,
      due_ms > 0 OR waits AS is_pending, pack
    FROM unnest($3::bigint[], $4::bigint[], $5::int[], $6::int[], $7::uuid[], $8::uuid[], $10::int[], $11::int[],
        $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::int[], $17::text[], $23::boolean[], $24::int[])
      AS item (run_id, definition_id, workflow_id, task_count, digest, body_hash, input_at, input_size,
        labels, key, due_ms, deadline_ms, max_parallel, traceparent, waits, pack)
  ), taken AS (
    INSERT INTO start_key (tenant_id, workflow_id, digest, run_id, body_hash)
    SELECT $1, workflow_id, digest, run_id, body_hash FROM item${where}
    ORDER BY workflow_id, digest
    ${onConflict}
    RETURNING run_id
  ), fresh AS MATERIALIZED (
    SELECT coalesce(array_agg(run_id ORDER BY run_id), ARRAY[-1]::bigint[]) AS ids FROM taken
  ), started AS (
    INSERT INTO run (tenant_id, id, definition_id, workflow_id, state, task_count, open_count, max_parallel, input,
      labels, idempotency_key, created_at, due_at, started_at, deadline_at, principal, traceparent)
    SELECT $1, run_id, definition_id, workflow_id, CASE WHEN is_pending THEN 1 ELSE 2 END, task_count, task_count,
      max_parallel, CASE WHEN input_size >= 0 THEN substring($9::bytea FROM input_at FOR input_size) END,
      labels::jsonb, key, now(), due_at, CASE WHEN is_pending THEN NULL ELSE now() END,
      CASE WHEN deadline_ms > 0 THEN coalesce(due_at, now()) + deadline_ms * interval '1 ms' END, $2, traceparent
    FROM item
    WHERE ${isFresh("run_id")}
  ), timers AS (
    INSERT INTO run_timer (tenant_id, run_id, kind, due_at)
    SELECT $1, run_id, 1, due_at FROM item WHERE due_at IS NOT NULL AND ${isFresh("run_id")}
    UNION ALL
    SELECT $1, run_id, 2, coalesce(due_at, now()) + deadline_ms * interval '1 ms'
    FROM item WHERE deadline_ms > 0 AND ${isFresh("run_id")}
  ), tasks AS (
    INSERT INTO task (tenant_id, id, pending)
    SELECT $1, task_id, pending
    FROM unnest($18::bigint[], $19::int[]) AS task (task_id, pending)
    WHERE ${isFresh("(task_id >> 20)")}
  ), heads AS (
    INSERT INTO ready (tenant_id, task_id, route_id, rank, attempt, failures, losses, ready_at)
    SELECT $1, task_id, route_id, rank, 0, 0, 0, now()
    FROM unnest($20::bigint[], $21::int[], $22::smallint[]) AS root (task_id, route_id, rank)
    WHERE ${isFresh("(task_id >> 20)")}
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types)
    SELECT min(run_id & 15)::smallint, $1, count(*), array_agg(run_id ORDER BY run_id),
      array_agg(definition_id ORDER BY run_id), array_agg(1 ORDER BY run_id), array_agg(1::smallint ORDER BY run_id)
    FROM item
    WHERE ${isFresh("run_id")}
    GROUP BY pack
    ORDER BY pack
  )
  SELECT CASE WHEN ids <> ARRAY[-1]::bigint[] THEN ids::text END AS started FROM fresh`;

const START_RUNS = startText({ onConflict: "ON CONFLICT DO NOTHING" });
const START_FRESH_RUNS = startText({
  where: `
    WHERE NOT EXISTS (
      SELECT FROM start_key
      WHERE start_key.tenant_id = $1 AND start_key.workflow_id = item.workflow_id AND start_key.digest = item.digest
      OFFSET 0)`,
});
