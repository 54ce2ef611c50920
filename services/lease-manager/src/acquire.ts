import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type LeasedTask, LeasedTaskSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import { findLastProgress } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { type ClaimedLease, claimReady, findAcquired } from "@runmesh/store/ready";
import { releaseLeases } from "@runmesh/store/release-leases";
import { findRunDefinitions } from "@runmesh/store/runs";
import type { ClaimTurns } from "./claim-turns.ts";
import { type Params, resolveParams } from "./params.ts";
import type { Reports } from "./reports.ts";
import type { RouteTable } from "./route-table.ts";
import type { Session } from "./sessions.ts";
import type { ArmedWaiter, Waiters } from "./waiters.ts";

export interface AcquireDeps {
  readonly hot: Db;
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly routes: RouteTable;
  readonly waiters: Waiters;
  readonly turns: ClaimTurns;
  readonly reports: Reports;
}

export interface Acquire {
  readonly session: Session;
  readonly max: number;
  readonly waitMs: number;
  /** Digest of the request id, where the caller wants a repeated acquire to find its leases. */
  readonly acquireId: string | undefined;
  readonly signal: AbortSignal;
}

/** Hints may be missed (another process, a lost connection): a waiting acquire looks this often. */
const POLL_MS = 1_000;
const MAX_RETRIES = 3;
/** So long a call waits for its turn to claim, though it does not wait for work. */
const MIN_PATIENCE_MS = 1_000;
/** Of so many routes at most, `claimReady` looks at the whole limit of each. */
const FULL_DEPTH_ROUTES = 4;
/** Bytes of params in one answer; a task that does not fit fetches its own. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024 - 256 * 1024;

/** Leases tasks that the session can run, waiting for the first (long poll). */
export async function acquire(deps: AcquireDeps, p: Acquire): Promise<LeasedTask[]> {
  const { session, signal } = p;
  const deadline = performance.now() + p.waitMs;
  if (p.acquireId !== undefined && session.repeatsAcquire(p.acquireId)) {
    const again = await findAgain(deps, session, p.acquireId);
    if (again.length > 0) return again;
  }
  for (;;) {
    const routeIds = await session.routeIds(deps.routes);
    const armed = deps.waiters.arm(routeIds);
    try {
      const patience = { timeoutMs: Math.max(MIN_PATIENCE_MS, deadline - performance.now()), signal };
      const tasks = routeIds.length === 0 ? [] : await claim(deps, p, routeIds, armed, patience);
      if (tasks.length > 0) return tasks;
      const restMs = deadline - performance.now();
      if (restMs > 0) await armed.wait(Math.min(restMs, POLL_MS), signal);
      if (restMs <= 0 || signal.aborted) {
        armed.passOn();
        return [];
      }
    } finally {
      armed.disarm();
    }
  }
}

const NOTHING_LOOKED_AT = { leases: [], contended: true } as const;

async function claim(
  deps: AcquireDeps,
  p: Acquire,
  routeIds: readonly number[],
  armed: ArmedWaiter,
  patience: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<LeasedTask[]> {
  if (armed.isDry(POLL_MS)) return [];
  const { session, max } = p;
  const { tenantId, leaseMs } = session;
  const claimed = { tenantId, sessionId: session.id, routeIds, limit: max, leaseMs, acquireId: p.acquireId };
  const outcome = await deps.turns.take(routeIds, patience, async () =>
    // Who had the turn before may have left nothing.
    armed.isDry(POLL_MS) ? NOTHING_LOOKED_AT : claimAll(deps.hot, claimed),
  );
  if (outcome === undefined) {
    // The hint that may have brought this one here is for another to follow.
    deps.waiters.wakeEach(routeIds);
    return [];
  }
  const { leases, contended } = outcome;
  // With few routes each head was looked at as deep as was asked for: less than that is all there was.
  const isAll = leases.length < max && (leases.length === 0 || routeIds.length <= FULL_DEPTH_ROUTES);
  if (isAll && !contended) armed.foundDry();
  else if (leases.length > 0) deps.waiters.wakeNext(routeIds);
  if (leases.length === 0) return [];
  if (p.signal.aborted) {
    // The caller went away while the claim ran: nobody would renew what it took.
    await releaseLeases(deps.hot, { tenantId, sessionId: session.id, leases });
    deps.waiters.wakeNext(routeIds);
    return [];
  }
  return handOut(deps, session, leases);
}

async function claimAll(db: Db, p: Parameters<typeof claimReady>[1]): ReturnType<typeof claimReady> {
  let claimed = await claimReady(db, p);
  // The claim of another process took what this one saw: there is more, or it will be back.
  for (let retry = 0; claimed.leases.length === 0 && claimed.contended && retry < MAX_RETRIES; retry++) {
    claimed = await claimReady(db, p);
  }
  return claimed;
}

/** Makes what the worker gets of leases: definitions, params and the progress of earlier attempts. */
async function handOut(deps: AcquireDeps, session: Session, leases: readonly ClaimedLease[]): Promise<LeasedTask[]> {
  const { tenantId } = session;
  const items: { lease: ClaimedLease; loaded: LoadedDefinition }[] = [];
  for (const lease of leases) {
    const loaded =
      deps.definitions.find(tenantId, lease.definitionId) ?? (await deps.definitions.get(tenantId, lease.definitionId));
    items.push({ lease, loaded });
    session.held.set(lease.taskId, { fence: lease.fence, loaded });
  }
  const [params, progress] = await Promise.all([
    resolveParams(deps.hot, tenantId, items),
    readProgress(deps.hot, tenantId, leases),
  ]);
  const tasks: LeasedTask[] = [];
  let room = MAX_ANSWER_BYTES;
  for (const [i, { lease, loaded }] of items.entries()) {
    const resolved: Params = params[i]!;
    if (!resolved.ok) {
      await deps.reports.failUnresolved(session, lease, resolved.message);
      continue;
    }
    const fits = resolved.json.length <= room;
    if (fits) room -= resolved.json.length;
    tasks.push(writeTask(lease, loaded, fits ? resolved.json : undefined, progress.get(lease.taskId)));
  }
  return tasks;
}

function writeTask(
  lease: ClaimedLease,
  loaded: LoadedDefinition,
  params: Uint8Array | undefined,
  progress: Buffer | undefined,
): LeasedTask {
  const ordinal = ordinalOf(lease.taskId);
  const route = loaded.routes[ordinal]!;
  const task = create(LeasedTaskSchema);
  task.taskId = lease.taskId;
  task.fence = lease.fence;
  task.runId = runIdOf(lease.taskId);
  task.key = loaded.plan.keys[ordinal]!;
  task.handler = route.handler;
  task.attempt = lease.attempt;
  if (params === undefined) task.paramsDeferred = true;
  else task.paramsJson = params;
  task.expireTime = timestampFromMs(lease.expiresAtMs);
  if (route.startToCloseMs > 0) task.startToClose = durationFromMs(route.startToCloseMs);
  if (route.heartbeatMs > 0) task.heartbeat = durationFromMs(route.heartbeatMs);
  if (progress !== undefined) task.progressJson = progress;
  task.workflow = loaded.row.workflow;
  task.workflowVersion = loaded.row.version;
  if (lease.traceparent !== null) task.traceparent = lease.traceparent;
  task.exclusive = route.exclusive;
  task.startFirst = loaded.definition.tasks[ordinal]!.retry.maxLost === 0;
  return task;
}

async function readProgress(db: Db, tenantId: number, leases: readonly ClaimedLease[]): Promise<Map<bigint, Buffer>> {
  const again = leases.filter((lease) => lease.attempt > 1).map((lease) => lease.taskId);
  if (again.length === 0) return new Map();
  const rows = await findLastProgress(db, { tenantId, taskIds: again });
  return new Map(rows.map((row) => [row.task_id, row.progress!]));
}

async function findAgain(deps: AcquireDeps, session: Session, acquireId: string): Promise<LeasedTask[]> {
  const { tenantId, id: sessionId } = session;
  const rows = await findAcquired(deps.hot, { tenantId, sessionId, acquireId });
  if (rows.length === 0) return [];
  const runIds = [...new Set(rows.map((row) => runIdOf(row.task_id)))];
  const runs = await findRunDefinitions(deps.hot, { tenantId, runIds });
  const definitionOf = new Map(runs.map((run) => [run.run_id, run.definition_id]));
  const leases = rows.map((row) => ({
    taskId: row.task_id,
    fence: row.fence,
    attempt: row.attempt,
    routeId: row.route_id,
    definitionId: definitionOf.get(runIdOf(row.task_id))!,
    input: undefined,
    hasInput: true,
    expiresAtMs: row.expires_at.getTime(),
    traceparent: null,
  }));
  return handOut(deps, session, leases);
}
