import { EVENT_TYPES, RUN_STATES, type RunState, readRunState } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { admit } from "./admit.ts";
import { insertAudit } from "./audit.ts";
import { changeRun } from "./change-run.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { runMove } from "./event-moves.ts";
import { holdRun, holdWaiting, releaseHeld } from "./held.ts";
import { type LockedRun, lockRun } from "./lock-run.ts";
import { insertEvents, insertRunEvents } from "./outbox-write.ts";
import { placeTasks } from "./place-tasks.ts";
import { hasRequest, noteRequest } from "./requests.ts";
import { freeUnleasedSlots } from "./slots.ts";
import { setSuspendedPaused } from "./suspended.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

interface Move {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly principal: string;
  readonly origin?: string | undefined;
  /** Digest of the request id: the same again changes nothing, whatever became of the run meanwhile. */
  readonly digest?: string | undefined;
}

export type MoveOutcome =
  | { readonly kind: "missing" }
  | { readonly kind: "refused"; readonly state: RunState }
  /** `moved` is false where it stood so already. */
  | { readonly kind: "done"; readonly moved: boolean; readonly wokenRoutes: ReadonlySet<number> };

const STANDS: MoveOutcome = { kind: "done", moved: false, wokenRoutes: new Set() };

/** Under the run's lock, so that no other can note it meanwhile. A refusal leaves it free for a later try. */
const isRepeat = async (tx: Db, { tenantId, digest }: Move): Promise<boolean> =>
  digest !== undefined && (await hasRequest(tx, { tenantId, digest }));

/** Tasks released in one transaction: a resume of a huge run holds its lock for no longer than that takes. */
const CHUNK = 5_000;

/**
 * Nothing new of the run is leased: what is scheduled or ready is held, in the direction that work flows, so that a
 * promotion or claim in flight is caught by the next sweep. Running handlers go on.
 */
export function pauseRun({ db }: Deps, p: Move): Promise<MoveOutcome> {
  return db.transaction(async (tx) => {
    const run = await lockRun(tx, p);
    if (run === undefined) return { kind: "missing" };
    if (await isRepeat(tx, p)) return STANDS;
    if (run.state !== RUN_STATES.RUNNING && run.state !== RUN_STATES.PAUSED) {
      return { kind: "refused", state: readRunState(run.state) };
    }
    if (p.digest !== undefined) await noteRequest(tx, { tenantId: p.tenantId, digest: p.digest });
    if (run.state === RUN_STATES.PAUSED) return STANDS;
    await setSuspendedPaused(tx, { ...p, paused: true });
    await holdWaiting(tx, p);
    await holdRun(tx, { ...p, place: "scheduled" });
    await holdRun(tx, { ...p, place: "ready" });
    // Tasks that were ready give their slots to others; running handlers keep theirs.
    const keys = await freeUnleasedSlots(tx, p);
    await move(tx, p, run, RUN_STATES.PAUSED, EVENT_TYPES.RUN_PAUSED, "run.pause");
    return { kind: "done", moved: true, wokenRoutes: await admit(tx, { tenantId: p.tenantId, keys }) };
  });
}

/** Moves what pausing held: due tasks to ready, the others to scheduled, in chunks. */
export async function resumeRun(deps: Deps, p: Move): Promise<MoveOutcome> {
  const outcome = await deps.db.transaction<MoveOutcome>(async (tx) => {
    const run = await lockRun(tx, p);
    if (run === undefined) return { kind: "missing" };
    if (await isRepeat(tx, p)) return STANDS;
    if (run.state !== RUN_STATES.RUNNING && run.state !== RUN_STATES.PAUSED) {
      return { kind: "refused", state: readRunState(run.state) };
    }
    if (p.digest !== undefined) await noteRequest(tx, { tenantId: p.tenantId, digest: p.digest });
    if (run.state === RUN_STATES.RUNNING) return STANDS;
    await setSuspendedPaused(tx, { ...p, paused: false });
    await move(tx, p, run, RUN_STATES.RUNNING, EVENT_TYPES.RUN_RESUMED, "run.resume");
    const { routeIds } = await release(tx, deps.definitions, p, run);
    return { kind: "done", moved: true, wokenRoutes: routeIds };
  });
  if (outcome.kind !== "done" || !outcome.moved) return outcome;
  const wokenRoutes = new Set([...outcome.wokenRoutes, ...(await releasePaused(deps, p))]);
  return { ...outcome, wokenRoutes };
}

/** Goes on with a resume, as long as the run is RUNNING. Also what a loop calls where a resume was cut off. */
export async function releasePaused(
  { db, definitions }: Deps,
  p: { tenantId: number; runId: bigint },
): Promise<ReadonlySet<number>> {
  const woken = new Set<number>();
  for (;;) {
    const released = await db.transaction(async (tx) => {
      const run = await lockRun(tx, p);
      if (run?.state !== RUN_STATES.RUNNING) return { count: 0, routeIds: new Set<number>() };
      return release(tx, definitions, p, run);
    });
    for (const route of released.routeIds) woken.add(route);
    if (released.count < CHUNK) return woken;
  }
}

async function release(
  tx: Db,
  definitions: DefinitionCache,
  { tenantId, runId }: { tenantId: number; runId: bigint },
  run: LockedRun,
): Promise<{ count: number; routeIds: ReadonlySet<number> }> {
  const { count, routeIds, limited } = await releaseHeld(tx, { tenantId, runId, limit: CHUNK });
  if (limited.length === 0) return { count, routeIds };
  const loaded = await definitions.get(tenantId, run.definition_id);
  const placed = await placeTasks(tx, { tenantId, loaded, tasks: limited });
  const woken = await admitTo(tx, { tenantId, placed });
  return { count, routeIds: new Set([...routeIds, ...woken]) };
}

async function move(tx: Db, p: Move, run: LockedRun, state: number, type: number, action: string): Promise<void> {
  const { tenantId, runId, principal, origin } = p;
  const sequence = run.sequence + 1;
  const unchanged = { ended: 0, dead: 0, skipped: 0, cancelled: 0, failing: 0, isTerminal: false, failure: undefined };
  await changeRun(tx, { tenantId, runId, state, sequence, ...unchanged });
  await insertRunEvents(tx, { tenantId, runId, principal, events: [{ sequence, type, taskId: null }] });
  await insertEvents(tx, { tenantId, runId, definitionId: run.definition_id, events: [runMove(sequence, type)] });
  await insertAudit(tx, { tenantId, principal, origin, action, target: `run/${runId}`, result: "done" });
}
