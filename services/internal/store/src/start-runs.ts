import { int2Array, int4Array, int8Array, textArray, uuidArray } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { packEvents } from "./outbox-packs.ts";
import { startText } from "./start-text.ts";
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
  /** Of each task by ordinal. */
  readonly routeIds: Int32Array;
  readonly ranks: Int16Array;
}

export interface Start {
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
 * The same for runs whose keys are most likely free, which is cheaper: a key that is not fails the statement, which is then
 * made anew. So it is not tried within a transaction, nor where that happened lately.
 */
export async function startFreshRuns(db: Db, p: Start): Promise<Set<bigint>> {
  if (db.isTransaction || performance.now() < (takenUntil.get(db) ?? 0)) return startRuns(db, p);
  try {
    return await start(db, "start_fresh_runs", START_FRESH_RUNS, p);
  } catch (error) {
    if (violatedConstraint(error) !== "start_key_pkey") throw error;
    takenUntil.set(db, performance.now() + TAKEN_MS);
    return startRuns(db, p);
  }
}

/** Who starts the same runs again does so with many, and each statement that fails is logged by the server. */
const TAKEN_MS = 10_000;
const takenUntil = new WeakMap<Db, number>();

async function start(db: Db, name: string, text: string, p: Start): Promise<Set<bigint>> {
  const { started } = await db.one<{ started: string | null }>(name, text, packStart(p).params);
  return readStarted(started);
}

export const readStarted = (array: string | null): Set<bigint> =>
  new Set(array === null ? [] : array.slice(1, -1).split(",").map(BigInt));

/** The statement's parameters, $1 to $23, and the first tasks among them, run by run. */
export function packStart({ tenantId, principal, runs }: Start): { params: unknown[]; roots: readonly Root[] } {
  const taskTotal = runs.reduce((sum, run) => sum + run.taskCount, 0);
  const taskIds = new BigInt64Array(taskTotal);
  const pending = new Int32Array(taskTotal);
  const roots: Root[] = [];
  let at = 0;
  for (const run of runs) {
    const base = run.runId << 20n;
    pending.set(run.pending, at);
    for (let ordinal = 0; ordinal < run.taskCount; ordinal++) taskIds[at++] = base | BigInt(ordinal);
    if (run.dueAtMs > 0) continue;
    for (const ordinal of run.roots) roots.push({ run, ordinal, taskId: base | BigInt(ordinal) });
  }
  const empty = Buffer.alloc(0);
  const inputs = runs.map((run) => run.input ?? empty);
  const isTimed = runs.some((run) => run.dueAtMs > 0 || run.deadlineMs > 0);
  const params = [
    tenantId,
    principal,
    int8Array(runs.map((run) => run.runId)),
    int8Array(runs.map((run) => run.definitionId)),
    int4Array(runs.map((run) => run.workflowId)),
    int4Array(runs.map((run) => run.taskCount)),
    uuidArray(runs.map((run) => run.digest)),
    uuidArray(runs.map((run) => run.bodyHash)),
    Buffer.concat(inputs),
    int4Array(offsets(inputs)),
    int4Array(runs.map((run) => run.input?.length ?? -1)),
    textArray(runs.map((run) => (run.labels === "{}" ? undefined : run.labels))),
    textArray(runs.map((run) => run.idempotencyKey)),
    isTimed ? int8Array(runs.map((run) => BigInt(run.dueAtMs))) : null,
    isTimed ? int8Array(runs.map((run) => BigInt(run.deadlineMs))) : null,
    int4Array(runs.map((run) => run.maxParallel)),
    textArray(runs.map((run) => run.traceparent)),
    int8Array(taskIds),
    int4Array(pending),
    int8Array(roots.map((root) => root.taskId)),
    int4Array(roots.map(({ run, ordinal }) => run.routeIds[ordinal]!)),
    int2Array(roots.map(({ run, ordinal }) => run.ranks[ordinal]!)),
    int4Array(packEvents(runs.map((run) => run.runId))),
  ];
  return { params, roots };
}

/** A task that waits for no other, of a run that does not wait for its time. */
export interface Root {
  readonly run: NewRun;
  readonly ordinal: number;
  readonly taskId: bigint;
}

function offsets(parts: readonly Buffer[]): number[] {
  let at = 1;
  return parts.map((part) => {
    const from = at;
    at += part.length;
    return from;
  });
}

const START_RUNS = startText({});
const START_FRESH_RUNS = startText({ areFresh: true });
