import { randomUUID } from "node:crypto";
import type { StartRunRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { exceedsUtf8, findTextFault, readKey, readName } from "@runmesh/domain/names";
import { validateDefinition } from "@runmesh/domain/validate-definition";
import { digestOf } from "@runmesh/platform/digest";
import { readPayload } from "@runmesh/platform/payload";
import { readTimestampMs } from "@runmesh/platform/timestamp";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { isLimited } from "@runmesh/store/limits";
import type { RunIds } from "@runmesh/store/run-ids";
import { findStartKeys, type StartKeyRow } from "@runmesh/store/start-keys";
import { startLimitedRuns, toRunSlot } from "@runmesh/store/start-limited-runs";
import { type NewRun, startFreshRuns } from "@runmesh/store/start-runs";
import { readDefinition } from "./definition-message.ts";
import { readLabels } from "./labels.ts";
import { pushOutOlder } from "./push-out.ts";
import type { Registry } from "./registry.ts";
import type { RunMoves } from "./run-moves.ts";
import { digestBody, isSameBody } from "./start-body.ts";

export interface StartDeps {
  /** For the start statement. */
  readonly hot: Db;
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly registry: Registry;
  readonly runIds: Pick<RunIds, "take">;
  readonly moves: RunMoves;
}

export interface StartedRun {
  readonly runId: bigint;
  readonly created: boolean;
  readonly version: number;
  readonly loaded: LoadedDefinition;
}

/** Tasks of one statement: larger batches are cut, so that no statement runs long. */
const MAX_TASKS_A_STATEMENT = 20_000;
const REFUSED_RETRY_MS = 5_000;

interface Prepared {
  readonly loaded: LoadedDefinition;
  readonly run: Omit<NewRun, "runId">;
}

/**
 * Starts runs, each on its own: an answer or a MeshError per request, in order (G6). `known` is what all of them run,
 * whatever they name.
 */
export async function startRequestedRuns(
  deps: StartDeps,
  tenantId: number,
  principal: string,
  requests: readonly StartRunRequest[],
  traceparent: string | undefined,
  known?: LoadedDefinition,
): Promise<(StartedRun | MeshError)[]> {
  const lookups = new Map<string, Promise<LoadedDefinition>>();
  const prepared = await Promise.all(
    requests.map(async (request) => {
      try {
        return prepare(request, known ?? (await findLoaded(deps, tenantId, request, lookups)), traceparent);
      } catch (error) {
        if (error instanceof MeshError) return error;
        throw error;
      }
    }),
  );
  const runs = prepared.filter((item): item is Prepared => !(item instanceof MeshError));
  const runIds = await deps.runIds.take(runs.length);
  const withIds = runs.map((item, i) => ({ ...item, run: { ...item.run, runId: runIds[i]! } }));
  const fresh = new Set<bigint>();
  const refused = new Set<bigint>();
  for (const chunk of chunksByTasks(withIds)) {
    const outcome = await startChunk(deps, tenantId, principal, chunk);
    for (const runId of outcome.started) fresh.add(runId);
    for (const runId of outcome.refused) refused.add(runId);
  }
  const earlier = await findEarlier(
    deps.db,
    tenantId,
    withIds.filter((item) => !fresh.has(item.run.runId)),
  );
  let next = 0;
  const answers = prepared.map((item) => {
    if (item instanceof MeshError) return item;
    const { loaded, run } = withIds[next++]!;
    if (fresh.has(run.runId)) return { runId: run.runId, created: true, version: loaded.row.version, loaded };
    const before = earlier.get(`${run.workflowId}/${run.digest}`);
    if (before === undefined && refused.has(run.runId)) return refuse(loaded);
    return answerEarlier(deps.db, tenantId, run, loaded, before);
  });
  return Promise.all(answers);
}

/** Starts runs in one statement, or, where limits have a say, as far as these let them through. */
async function startChunk(
  deps: StartDeps,
  tenantId: number,
  principal: string,
  chunk: readonly { readonly run: NewRun; readonly loaded: LoadedDefinition }[],
): Promise<{ started: ReadonlySet<bigint>; refused: ReadonlySet<bigint> }> {
  const runs = chunk.map((item) => item.run);
  const limited = chunk.filter((item) => isLimited(item.loaded));
  if (limited.length === 0) {
    return { started: await startFreshRuns(deps.hot, { tenantId, principal, runs }), refused: new Set() };
  }
  const outcome = await startLimitedRuns(deps, { tenantId, principal, runs, limited });
  // A repeated start does so too, as that which it repeats may have been cut off before.
  await cancelOlder(
    deps,
    tenantId,
    limited.filter((item) => !outcome.refused.has(item.run.runId)),
  );
  return outcome;
}

/** Runs that a newcomer of their limit pushes out: the newest that fit stay. */
async function cancelOlder(
  deps: StartDeps,
  tenantId: number,
  started: readonly { readonly run: NewRun; readonly loaded: LoadedDefinition }[],
): Promise<void> {
  for (const item of started) {
    if (item.loaded.definition.concurrency?.onConflict !== "cancel_oldest") continue;
    // One that begins later pushes out when it does.
    if (item.run.dueAtMs > Date.now()) continue;
    const { key, limit } = toRunSlot(item);
    await pushOutOlder({ db: deps.hot, moves: deps.moves }, { tenantId, key, limit });
  }
}

const refuse = ({ definition }: LoadedDefinition) =>
  new MeshError("OVERLOADED", `${definition.name}: the limit of runs with this key is reached`, {
    retryAfterMs: REFUSED_RETRY_MS,
  });

async function answerEarlier(
  db: Db,
  tenantId: number,
  run: NewRun,
  loaded: LoadedDefinition,
  earlier: StartKeyRow | undefined,
): Promise<StartedRun | MeshError> {
  if (earlier === undefined) {
    return new MeshError("UNAVAILABLE", "the run that holds this key ended a moment ago", { retryAfterMs: 100 });
  }
  if (!(await isSameBody(db, tenantId, run, earlier))) {
    return new MeshError("IDEMPOTENCY_MISMATCH", `the key started run ${earlier.run_id} with another body`, {
      violations: [
        {
          field: run.idempotencyKey === undefined ? "request_id" : "idempotency_key",
          reason: "IDEMPOTENCY_MISMATCH",
          description: `run ${earlier.run_id} has it, with another input, labels or due time`,
        },
      ],
    });
  }
  return { runId: earlier.run_id, created: false, version: earlier.version ?? loaded.row.version, loaded };
}

async function findEarlier(db: Db, tenantId: number, items: readonly { run: NewRun }[]) {
  if (items.length === 0) return new Map<string, StartKeyRow>();
  const rows = await findStartKeys(db, {
    tenantId,
    workflowIds: items.map((item) => item.run.workflowId),
    digests: items.map((item) => item.run.digest),
  });
  return new Map(rows.map((row) => [`${row.workflow_id}/${row.digest}`, row]));
}

/** Finds what a request wants to run; requests of one batch that want the same share the look-up. */
function findLoaded(
  deps: StartDeps,
  tenantId: number,
  request: StartRunRequest,
  lookups: Map<string, Promise<LoadedDefinition>>,
): Promise<LoadedDefinition> {
  const { registry, definitions } = deps;
  if (request.definition !== undefined) {
    if (request.workflow !== "") throw invalidField("workflow", "excludes definition");
    const definition = validateDefinition(readDefinition(request.definition, "definition"), "definition");
    return registry.register(tenantId, definition, true).then(({ row }) => definitions.get(tenantId, row.id));
  }
  const key = request.contentHash !== "" ? request.contentHash : `${request.workflow}/${request.version}`;
  let lookup = lookups.get(key);
  if (lookup === undefined) {
    const found =
      request.contentHash !== ""
        ? registry.getByHash(tenantId, request.contentHash)
        : registry.getVersion(tenantId, readName(request.workflow, "workflow"), request.version);
    lookup = found.then((row) => definitions.get(tenantId, row.id));
    lookups.set(key, lookup);
  }
  return lookup;
}

function prepare(request: StartRunRequest, loaded: LoadedDefinition, traceparent: string | undefined): Prepared {
  const input = readPayload(request.inputPayload, "input");
  const labels = readLabels(request.labels);
  const dueAtMs = request.dueTime === undefined ? 0 : readTimestampMs(request.dueTime, "due_time");
  const key = request.idempotencyKey === "" ? undefined : readKey(request.idempotencyKey, "idempotency_key");
  if (request.requestId !== "") readRequestId(request.requestId);
  const { plan, definition, row } = loaded;
  return {
    loaded,
    run: {
      definitionId: row.id,
      workflowId: row.workflow_id,
      taskCount: plan.taskCount,
      digest: digestKey(key, request.requestId),
      bodyHash: digestBody({ input, labels, dueAtMs }),
      input: input === undefined ? undefined : Buffer.from(input),
      labels,
      idempotencyKey: key,
      dueAtMs,
      deadlineMs: definition.deadlineMs,
      maxParallel: definition.maxParallel,
      traceparent,
      pending: plan.initialPending,
      roots: plan.roots,
      routeIds: loaded.routeIds,
      ranks: loaded.ranks,
    },
  };
}

function readRequestId(id: string): void {
  const fault = findTextFault(id) ?? (exceedsUtf8(id, 128) ? "must be at most 128 bytes" : undefined);
  if (fault !== undefined) throw invalidField("request_id", fault);
}

function digestKey(key: string | undefined, requestId: string): string {
  if (key !== undefined) return digestOf(`key:${key}`);
  return requestId === "" ? randomUUID() : digestOf(`request:${requestId}`);
}

function* chunksByTasks<T extends { readonly run: NewRun }>(items: readonly T[]): Generator<T[]> {
  let chunk: T[] = [];
  let tasks = 0;
  for (const item of items) {
    if (chunk.length > 0 && tasks + item.run.taskCount > MAX_TASKS_A_STATEMENT) {
      yield chunk;
      chunk = [];
      tasks = 0;
    }
    chunk.push(item);
    tasks += item.run.taskCount;
  }
  if (chunk.length > 0) yield chunk;
}
