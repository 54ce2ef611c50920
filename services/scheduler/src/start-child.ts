import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import {
  type StartChildRunRequest,
  type StartRunRequest,
  StartRunRequestSchema,
} from "@runmesh/contracts/run/v1/run_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { readName } from "@runmesh/domain/names";
import { digestOf } from "@runmesh/platform/digest";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { setParent } from "@runmesh/store/change-run";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { explainLeases } from "@runmesh/store/leases";
import { lockHeldLeases } from "@runmesh/store/lock-leases";
import { findRun } from "@runmesh/store/runs";
import { findSession } from "@runmesh/store/sessions";
import { adoptLoose, renewChild } from "@runmesh/store/step-failures";
import { findSteps, MAX_STEPS, recordSteps, STEP_KINDS, STEP_OUTCOMES } from "@runmesh/store/steps";
import { DeferredCancels } from "./deferred-cancels.ts";
import { Registry } from "./registry.ts";
import { type StartDeps, type StartedRun, startRequestedRuns } from "./start-runs.ts";

export interface StartedChild {
  readonly runId: bigint;
  readonly created: boolean;
  readonly version: number;
  /** What was started now. */
  readonly started: StartedRun | undefined;
  /** Runs that it pushed out of a limit. */
  readonly pushedOut?: DeferredCancels;
}

export interface StartChild {
  readonly tenantId: number;
  readonly request: StartChildRunRequest;
  readonly traceparent: string | undefined;
}

/**
 * Starts a run for a handler, under the lock of its lease (G1), in the transaction that records it: a second pass finds
 * the same run, and a cancel of the parent, which waits for the lease, finds the child (C-3, V-15, H-2).
 */
export async function startChild(
  deps: StartDeps & { readonly wakeups: Wakeups },
  p: StartChild,
): Promise<StartedChild> {
  const { tenantId, request } = p;
  const { sessionId, taskId, fence, position } = request;
  const start = readStart(request);
  const workflow = readName(start.workflow, "start.workflow");
  const tokenHash = createHash("sha256").update(request.sessionToken).digest();
  const session = await findSession(deps.db, { tenantId, sessionId, tokenHash });
  if (session === undefined) throw new MeshError("SESSION_CLOSED", `session ${sessionId} is unknown or closed`);
  // Nothing in the transaction waits for a second connection: starts side by side would wait for each other.
  const loaded = await findLoaded(deps, tenantId, start);
  const runIds = await deps.runIds.take(1);
  const reserved = { ...deps, runIds: { take: async () => runIds } };
  const outcome = await deps.db.transaction(async (tx) => {
    const pushedOut = new DeferredCancels({ ...deps, db: tx });
    const [lease] = await lockHeldLeases(tx, { tenantId, sessionId, leases: [{ taskId, fence }] });
    if (lease === undefined) return undefined;
    const call = { position, kind: STEP_KINDS.CHILD, name: workflow, occurrence: request.occurrence };
    await adoptLoose(tx, { tenantId, taskId, calls: [call] });
    const [step] = await findSteps(tx, { tenantId, taskId, positions: [position] });
    if (step !== undefined && (step.kind !== STEP_KINDS.CHILD || step.name !== workflow)) {
      throw invalidField("position", "is recorded as another call");
    }
    if (step?.child_run_id && !step.renew) return findStarted(tx, tenantId, step.child_run_id);
    const child = await startInside({ ...reserved, moves: pushedOut }, tx, p, start, loaded);
    const { runId } = child;
    await setParent(tx, { tenantId, runId, parentTaskId: taskId, detached: request.detached });
    if (step !== undefined) await renewChild(tx, { tenantId, taskId, position, childRunId: runId });
    else {
      const answer = { outcome: STEP_OUTCOMES.ANSWERED, value: null, childRunId: runId };
      await recordSteps(tx, { tenantId, taskId, steps: [{ ...call, ...answer }] });
    }
    return { runId, created: true, version: child.version, started: child, pushedOut };
  });
  if (outcome === undefined) throw await explain(deps.db, tenantId, request);
  await outcome.pushedOut?.perform(deps.moves);
  return outcome;
}

function readStart(request: StartChildRunRequest): StartRunRequest {
  const { start, position, occurrence } = request;
  if (position >= MAX_STEPS) throw invalidField("position", `must be below ${MAX_STEPS}`, "TOO_LARGE");
  if (occurrence >= MAX_STEPS) throw invalidField("occurrence", `must be below ${MAX_STEPS}`);
  if (start === undefined) throw invalidField("start", "must be given");
  if (start.definition !== undefined) throw invalidField("start.definition", "a child is started by its name");
  if (start.idempotencyKey !== "") throw invalidField("start.idempotency_key", "a child has the key of its call");
  if (start.requestId !== "") throw invalidField("start.request_id", "a child has the key of its call");
  return start;
}

/** An ordinary start, with everything on the one connection of the transaction. */
async function startInside(
  deps: StartDeps,
  tx: Db,
  { tenantId, request, traceparent }: StartChild,
  start: StartRunRequest,
  loaded: LoadedDefinition,
): Promise<StartedRun> {
  const { taskId, position, fence } = request;
  const scoped = { ...deps, db: tx, hot: tx, registry: new Registry(tx) };
  // The record tells a second pass of the run; a key of its own for each lease lets a failed child be started anew.
  const keyed = create(StartRunRequestSchema, {
    ...start,
    requestId: digestOf(`child:${taskId}/${position}/${fence}`),
  });
  const principal = `task/${taskId}`;
  const [started] = await startRequestedRuns(scoped, tenantId, principal, [keyed], traceparent, loaded);
  if (started instanceof MeshError) throw started;
  return started!;
}

async function findLoaded(deps: StartDeps, tenantId: number, start: StartRunRequest): Promise<LoadedDefinition> {
  const { registry, definitions } = deps;
  const { contentHash, workflow, version } = start;
  const row =
    contentHash === ""
      ? await registry.getVersion(tenantId, workflow, version)
      : await registry.getByHash(tenantId, contentHash);
  return definitions.get(tenantId, row.id);
}

async function findStarted(tx: Db, tenantId: number, runId: bigint): Promise<StartedChild> {
  const row = await findRun(tx, { tenantId, runId });
  return { runId, created: false, version: row?.version ?? 0, started: undefined };
}

async function explain(db: Db, tenantId: number, request: StartChildRunRequest): Promise<MeshError> {
  const { sessionId, taskId, fence } = request;
  const [row] = await explainLeases(db, { tenantId, sessionId, leases: [{ taskId, fence }] });
  if (row?.run_state !== 2 && row?.run_state !== 3) {
    return new MeshError("RUN_NOT_ACTIVE", `the run of task ${taskId} has ended`);
  }
  if (row.lease_fence === fence) return new MeshError("LEASE_EXPIRED", `the lease ${fence} of task ${taskId} ran out`);
  return new MeshError("FENCE_STALE", `fence ${fence} of task ${taskId} is not current`);
}
