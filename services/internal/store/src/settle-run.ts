import { ordinalOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { decideFailure, type FailureDecision, MESH_ERROR_TYPES } from "@runmesh/domain/retry";
import { ATTEMPT_OUTCOMES, type AttemptOutcome, EVENT_TYPES, RUN_STATES } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { insertAttempts, listLostInARow, type NewAttempt } from "./attempts.ts";
import { admitRuns } from "./begin-run.ts";
import { tellParent } from "./child-end.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { runMove, taskMove } from "./event-moves.ts";
import type { LeaseRow } from "./leases.ts";
import { isLimited, isTaskLimited } from "./limits.ts";
import { deleteLeases } from "./lock-leases.ts";
import { insertEvents, insertRunEvents, type NewEvent } from "./outbox-write.ts";
import { placeTasks } from "./place-tasks.ts";
import { insertHeld, insertReady, insertScheduled, type PlacedTask } from "./places.ts";
import { freeRunSlot } from "./run-slots.ts";
import { changeRun, type LockedRun, lockRun } from "./runs.ts";
import { freeSlots } from "./slots.ts";
import { haveChildrenFollow } from "./stray-children.ts";
import { endTasks } from "./tasks.ts";
import { unfold } from "./unfold.ts";
import { NOTHING_PLACED, type Placed } from "./wake-tasks.ts";

/**
 * Ends leases otherwise than by a plain success, under their run's lock. Invariants:
 *   1. The run is locked first, then the leases, then tasks: the lock order of the design.
 *   2. What a lease's end decides (retry, death, what follows in the graph) is decided by the domain from rows read
 *      under the run's lock, and commits with its attempt and events (G2); sequences have no gap (G3).
 *   3. A lease that never started burns nothing: it goes back to ready, ahead of its priority (G7). From the fourth of
 *      these losses in a row it counts as one after the start, so that a task that kills its worker at once ends too.
 *   4. Counters on the run's row change by what was written in this transaction, and by nothing else (G8).
 */
export interface EndedLease {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly outcome: AttemptOutcome;
  readonly output?: Buffer | undefined;
  readonly error?: LeaseError | undefined;
  readonly retryAfterMs?: number | undefined;
}

export interface LeaseError {
  readonly type: string;
  readonly message: Buffer;
  readonly retryable: boolean;
  readonly details: Buffer | null;
}

export interface SettleDeps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly random: () => number;
}

export interface LeaseLost {
  readonly sessionId: bigint;
  readonly taskId: bigint;
  readonly fence: bigint;
}

export type SettleOutcome =
  | { readonly kind: "busy" }
  | { readonly kind: "inactive" }
  | {
      readonly kind: "settled";
      /** Tasks whose lease was ended as asked; the others were not held any more. */
      readonly accepted: ReadonlySet<bigint>;
      readonly wokenRoutes: ReadonlySet<number>;
      /** Leases of other tasks that this ended. */
      readonly lost: readonly LeaseLost[];
      readonly isEnded: boolean;
    };

export interface SettleRun {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly ended: readonly EndedLease[];
  /** Locks the leases that may still be ended so: who holds them, and by whose word, differs. */
  readonly lockLeases: (tx: Db) => Promise<LeaseRow[]>;
  /** Passes over a run that another holds. */
  readonly skipLocked?: boolean;
}

export async function settleRun(deps: SettleDeps, p: SettleRun): Promise<SettleOutcome> {
  return deps.db.transaction(async (tx) => {
    const { tenantId, runId } = p;
    const run = await lockRun(tx, { tenantId, runId, skipLocked: p.skipLocked ?? false });
    if (run === undefined) return { kind: p.skipLocked ? "busy" : "inactive" };
    if (run.state !== RUN_STATES.RUNNING && run.state !== RUN_STATES.PAUSED) return { kind: "inactive" };
    const loaded = await deps.definitions.get(tenantId, run.definition_id);
    const leases = await p.lockLeases(tx);
    if (leases.length === 0) {
      return { kind: "settled", accepted: new Set(), wokenRoutes: new Set(), lost: [], isEnded: false };
    }
    const settling = new Settling(tx, tenantId, run, loaded, deps);
    const ended = new Map(p.ended.map((end) => [end.taskId, end]));
    const silent = await findSilentKillers(tx, p, leases);
    for (const lease of leases) settling.end(lease, ended.get(lease.task_id)!, silent.has(lease.task_id));
    return settling.write(leases);
  });
}

/** A task that ends its process at once is lost before anyone hears that it started: so often in a row, and it counts. */
async function findSilentKillers(tx: Db, p: SettleRun, leases: readonly LeaseRow[]): Promise<ReadonlySet<bigint>> {
  const { tenantId, runId } = p;
  const lost = new Set(p.ended.filter((end) => end.outcome === "LOST").map((end) => end.taskId));
  const taskIds = leases
    .filter((lease) => lost.has(lease.task_id) && lease.started_at === null && lease.attempt > SILENT_LOSSES)
    .map((lease) => lease.task_id);
  if (taskIds.length === 0) return new Set();
  const rows = await listLostInARow(tx, { tenantId, runId, taskIds, count: SILENT_LOSSES });
  return new Set(rows.map((row) => row.task_id));
}

/** What one transaction gathers, then writes. */
class Settling {
  readonly #tx: Db;
  readonly #tenantId: number;
  readonly #run: LockedRun;
  readonly #loaded: LoadedDefinition;
  readonly #random: () => number;
  readonly #definitions: DefinitionCache;
  readonly #attempts: NewAttempt[] = [];
  readonly #events: NewEvent[] = [];
  readonly #ready: PlacedTask[] = [];
  readonly #scheduled: (PlacedTask & { delayMs: number })[] = [];
  readonly #succeeded: number[] = [];
  readonly #dead: number[] = [];
  #failure: { taskId: bigint; type: string; message: Buffer } | undefined;
  #sequence: number;

  constructor(tx: Db, tenantId: number, run: LockedRun, loaded: LoadedDefinition, deps: SettleDeps) {
    this.#tx = tx;
    this.#tenantId = tenantId;
    this.#run = run;
    this.#loaded = loaded;
    this.#random = deps.random;
    this.#definitions = deps.definitions;
    this.#sequence = run.sequence;
  }

  /** `isSilentKiller`: a loss counts, though nobody heard of the start. */
  end(lease: LeaseRow, end: EndedLease, isSilentKiller: boolean): void {
    const { outcome } = end;
    if (outcome === "SUCCEEDED") {
      this.#succeeded.push(ordinalOf(lease.task_id));
      this.#record(lease, end, EVENT_TYPES.TASK_SUCCEEDED, null, undefined);
    } else if (outcome === "LOST" && lease.started_at === null && !isSilentKiller) {
      this.#record(lease, end, 0, null, undefined);
      const { rank, attempt, ready_at: readyAt } = lease;
      this.#ready.push({ ...placed(lease), rank: recovered(rank), attempt, readyAt });
    } else {
      this.#fail(lease, end);
    }
  }

  #fail(lease: LeaseRow, end: EndedLease): void {
    const ordinal = ordinalOf(lease.task_id);
    const outcome = end.outcome as "FAILED" | "TIMED_OUT" | "LOST";
    const isLoss = outcome === "LOST";
    const failures = lease.failures + (isLoss ? 0 : 1);
    const losses = lease.losses + (isLoss ? 1 : 0);
    const error = end.error ?? WORKER_LOST;
    const decision = decideFailure({
      policy: this.#loaded.definition.tasks[ordinal]!.retry,
      failures,
      losses,
      outcome,
      errorType: error.type,
      retryable: error.retryable,
      retryAfterMs: end.retryAfterMs ?? 0,
      random: this.#random,
    });
    this.#follow(lease, { ...end, error }, this.#wait(lease, end, decision), { ...placed(lease), failures, losses });
  }

  /** An exclusive task whose handler may still run is not leased again before its old lease would have ended. */
  #wait(lease: LeaseRow, end: EndedLease, decision: FailureDecision): FailureDecision {
    const isExclusive = this.#loaded.routes[ordinalOf(lease.task_id)]!.exclusive;
    if (!isExclusive || decision.kind === "dead" || end.outcome !== "TIMED_OUT") return decision;
    return { ...decision, delayMs: Math.max(decision.delayMs, lease.remaining_ms) };
  }

  #follow(lease: LeaseRow, end: EndedLease & { error: LeaseError }, decision: FailureDecision, task: PlacedTask): void {
    if (decision.kind === "dead") {
      this.#record(lease, end, EVENT_TYPES.TASK_DEAD, null, decision.errorType);
      this.#dead.push(ordinalOf(lease.task_id));
      if (!this.#loaded.definition.tasks[ordinalOf(lease.task_id)]!.allowFailure) {
        this.#failure ??= { taskId: lease.task_id, type: decision.errorType, message: end.error.message };
      }
      return;
    }
    this.#record(lease, end, EVENT_TYPES.TASK_RETRYING, decision.delayMs, undefined);
    if (decision.delayMs > 0) this.#scheduled.push({ ...task, delayMs: decision.delayMs });
    else this.#ready.push({ ...task, rank: end.outcome === "LOST" ? recovered(task.rank) : task.rank });
  }

  #record(
    lease: LeaseRow,
    end: EndedLease,
    eventType: number,
    retryAfterMs: number | null,
    errorType: string | undefined,
  ): void {
    const sequence = eventType === 0 ? 0 : ++this.#sequence;
    const outcome = ATTEMPT_OUTCOMES[end.outcome];
    const startedAt =
      lease.started_at ?? (end.outcome === "SUCCEEDED" || end.outcome === "FAILED" ? lease.leased_at : null);
    const type = errorType ?? end.error?.type ?? null;
    this.#attempts.push({
      taskId: lease.task_id,
      fence: lease.fence,
      number: lease.attempt,
      sessionId: lease.session_id,
      leasedAt: lease.leased_at,
      startedAt,
      outcome,
      sequence,
      eventType,
      output: end.output ?? null,
      errorType: type,
      errorMessage: end.error?.message ?? null,
      errorDetails: end.error?.details ?? null,
      retryable: end.error?.retryable ?? null,
      retryAfterMs,
      progress: lease.progress,
    });
    if (sequence === 0) return;
    this.#events.push({
      sequence,
      type: eventType,
      taskId: lease.task_id,
      attempt: lease.attempt,
      fence: lease.fence,
      sessionId: lease.session_id,
      leasedAt: lease.leased_at,
      startedAt,
      outcome,
      errorType: type,
      retryAfterMs,
    });
  }

  async write(leases: readonly LeaseRow[]): Promise<SettleOutcome> {
    const tx = this.#tx;
    const tenantId = this.#tenantId;
    const runId = this.#run.id;
    await deleteLeases(tx, { tenantId, taskIds: leases.map((lease) => lease.task_id) });
    const deadIds = this.#dead.map((ordinal) => toTaskId(runId, ordinal));
    if (deadIds.length > 0) await endTasks(tx, { tenantId, taskIds: deadIds, state: 7 });
    const graph = await unfold(tx, {
      tenantId,
      runId,
      loaded: this.#loaded,
      succeeded: this.#succeeded,
      dead: this.#dead,
      attempts: this.#attempts,
    });
    // A handler that ended for good may have left children behind.
    if (this.#dead.length > 0) await haveChildrenFollow(tx, { tenantId, runId });
    const skipped = graph.skipped.map((ordinal) => ({
      sequence: ++this.#sequence,
      type: EVENT_TYPES.TASK_SKIPPED,
      taskId: toTaskId(runId, ordinal),
    }));
    if (this.#attempts.length > 0) await insertAttempts(tx, { tenantId, attempts: this.#attempts });
    const freed = await this.#freeSlots(graph.cancelled);
    const placed = await this.#place(graph.ready);
    const isEnded = await this.#changeRun(graph.skipped.length, graph.cancelled.length);
    if (skipped.length > 0) await insertRunEvents(tx, { tenantId, runId, principal: "", events: skipped });
    await this.#writeEvents(skipped, isEnded);
    const parent = await this.#tellParent(isEnded);
    const woken = await this.#admit(placed, [...freed, ...parent.keys], isEnded);
    return {
      kind: "settled",
      accepted: new Set(leases.map((lease) => lease.task_id)),
      wokenRoutes: new Set([...woken, ...parent.routeIds]),
      lost: graph.lost,
      isEnded,
    };
  }

  /** What ended or waits for its next attempt gives its slots back; what goes on at once keeps them (recovery). */
  async #freeSlots(cancelled: readonly number[]): Promise<string[]> {
    if (!isLimited(this.#loaded)) return [];
    const ordinals = [...this.#succeeded, ...this.#dead, ...cancelled];
    const back = this.#run.state === RUN_STATES.PAUSED ? [...this.#ready, ...this.#scheduled] : this.#scheduled;
    const taskIds = [...ordinals.map((at) => toTaskId(this.#run.id, at)), ...back.map((task) => task.taskId)];
    return freeSlots(this.#tx, { tenantId: this.#tenantId, taskIds });
  }

  /** A paused run's tasks are held until it is resumed; due times go on. */
  async #place(unblocked: readonly PlacedTask[]): Promise<Placed> {
    const tx = this.#tx;
    const tenantId = this.#tenantId;
    const flag = (task: PlacedTask, delayMs: number) => ({
      ...task,
      delayMs,
      limited: isTaskLimited(this.#loaded, task.taskId),
    });
    const scheduled = this.#scheduled.map((task) => flag(task, task.delayMs));
    if (this.#run.state === RUN_STATES.PAUSED) {
      const held = [...[...this.#ready, ...unblocked].map((task) => flag(task, 0)), ...scheduled];
      if (held.length > 0) await insertHeld(tx, { tenantId, tasks: held, reason: 1 });
      return { routeIds: new Set(), keys: [] };
    }
    if (scheduled.length > 0) await insertScheduled(tx, { tenantId, tasks: scheduled });
    if (this.#ready.length > 0) await insertReady(tx, { tenantId, tasks: this.#ready });
    const placed = await placeTasks(tx, { tenantId, loaded: this.#loaded, tasks: unblocked });
    return { ...placed, routeIds: new Set([...placed.routeIds, ...this.#ready.map((task) => task.routeId)]) };
  }

  /** A run that ends answers the handler that started it and waits for its end. */
  async #tellParent(isEnded: boolean): Promise<Placed> {
    const { id: runId, parent_task_id: parentTaskId } = this.#run;
    if (!isEnded || parentTaskId === null) return NOTHING_PLACED;
    return tellParent(this.#tx, this.#definitions, { tenantId: this.#tenantId, runId, parentTaskId });
  }

  /** The last locks of the transaction: keys of slots, then of runs that share a limit. */
  async #admit(placed: Placed, freed: readonly string[], isEnded: boolean): Promise<ReadonlySet<number>> {
    const tenantId = this.#tenantId;
    const woken = await admitTo(this.#tx, { tenantId, placed, freed });
    if (!isEnded || this.#loaded.definition.concurrency === undefined) return woken;
    const keys = await freeRunSlot(this.#tx, { tenantId, runId: this.#run.id });
    return new Set([...woken, ...(await admitRuns(this.#tx, this.#definitions, { tenantId, keys }))]);
  }

  async #changeRun(skipped: number, cancelled: number): Promise<boolean> {
    const dead = this.#dead.length;
    const ended = this.#succeeded.length + dead + skipped + cancelled;
    const failing = this.#dead.filter((ordinal) => !this.#loaded.definition.tasks[ordinal]!.allowFailure).length;
    const isEnded = this.#run.open_count === ended;
    const hasFailed = this.#run.failing_count + failing > 0;
    const endState = hasFailed ? RUN_STATES.FAILED : RUN_STATES.SUCCEEDED;
    if (ended === 0 && this.#sequence === this.#run.sequence) return false;
    await changeRun(this.#tx, {
      tenantId: this.#tenantId,
      runId: this.#run.id,
      state: isEnded ? endState : this.#run.state,
      sequence: this.#sequence + (isEnded ? 1 : 0),
      ended,
      dead,
      skipped,
      cancelled,
      failing,
      isTerminal: isEnded,
      failure: this.#failure,
    });
    if (isEnded) {
      this.#events.push(runMove(++this.#sequence, hasFailed ? EVENT_TYPES.RUN_FAILED : EVENT_TYPES.RUN_SUCCEEDED));
    }
    return isEnded;
  }

  async #writeEvents(skipped: readonly { sequence: number; type: number; taskId: bigint }[], isEnded: boolean) {
    const events = [...this.#events.slice(0, isEnded ? -1 : undefined), ...skipped.map(taskMove)];
    if (isEnded) events.push(this.#events.at(-1)!);
    if (events.length === 0) return;
    const { id: runId, definition_id: definitionId } = this.#run;
    await insertEvents(this.#tx, { tenantId: this.#tenantId, runId, definitionId, events });
  }
}

const placed = (lease: LeaseRow): PlacedTask => ({
  taskId: lease.task_id,
  routeId: lease.route_id,
  rank: unrecovered(lease.rank),
  attempt: lease.attempt,
  failures: lease.failures,
  losses: lease.losses,
});

/** Ranks are even; one less goes ahead of the backlog of the same priority. */
const unrecovered = (rank: number): number => rank + (rank & 1);
const recovered = (rank: number): number => unrecovered(rank) - 1;

/** Losses in a row before a start was told that burn nothing. */
const SILENT_LOSSES = 3;

const WORKER_LOST: LeaseError = {
  type: MESH_ERROR_TYPES.WORKER_LOST,
  message: Buffer.from("The lease ran out before the worker reported."),
  retryable: true,
  details: null,
};
