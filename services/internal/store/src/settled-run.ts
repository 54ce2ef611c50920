import { taskId as toTaskId } from "@runmesh/domain/ids";
import { EVENT_TYPES, RUN_STATES } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { insertAttempts } from "./attempts.ts";
import { admitRuns } from "./begin-run.ts";
import { changeRun } from "./change-run.ts";
import { tellParent } from "./child-end.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache, LoadedDefinition } from "./definition-cache.ts";
import { runMove, taskMove } from "./event-moves.ts";
import type { LeaseEnds } from "./lease-ends.ts";
import type { LeaseRow } from "./leases.ts";
import { isLimited, isTaskLimited } from "./limits.ts";
import { deleteLeases } from "./lock-leases.ts";
import type { LockedRun } from "./lock-run.ts";
import { insertEvents, insertRunEvents } from "./outbox-write.ts";
import { placeTasks } from "./place-tasks.ts";
import { insertHeld, insertReady, insertScheduled, type PlacedTask } from "./places.ts";
import { freeRunSlot } from "./run-slots.ts";
import type { SettleOutcome } from "./settle-run.ts";
import { freeSlots } from "./slots.ts";
import { haveChildrenFollow } from "./stray-children.ts";
import { endTasks } from "./tasks.ts";
import { unfold } from "./unfold.ts";
import { NOTHING_PLACED, type Placed } from "./wake-tasks.ts";

export interface Settled {
  readonly tenantId: number;
  readonly run: LockedRun;
  readonly loaded: LoadedDefinition;
  readonly ends: LeaseEnds;
}

/** Writes what the ends of leases come to, and what follows in the run's graph, in the transaction that holds the run. */
export class SettledRun {
  readonly #tx: Db;
  readonly #definitions: DefinitionCache;
  readonly #tenantId: number;
  readonly #run: LockedRun;
  readonly #loaded: LoadedDefinition;
  readonly #ends: LeaseEnds;

  constructor(tx: Db, definitions: DefinitionCache, settled: Settled) {
    this.#tx = tx;
    this.#definitions = definitions;
    this.#tenantId = settled.tenantId;
    this.#run = settled.run;
    this.#loaded = settled.loaded;
    this.#ends = settled.ends;
  }

  async write(leases: readonly LeaseRow[]): Promise<SettleOutcome> {
    const tx = this.#tx;
    const tenantId = this.#tenantId;
    const runId = this.#run.id;
    await deleteLeases(tx, { tenantId, taskIds: leases.map((lease) => lease.task_id) });
    const deadIds = this.#ends.dead.map((ordinal) => toTaskId(runId, ordinal));
    if (deadIds.length > 0) await endTasks(tx, { tenantId, taskIds: deadIds, state: 7 });
    const graph = await unfold(tx, {
      tenantId,
      runId,
      loaded: this.#loaded,
      succeeded: this.#ends.succeeded,
      dead: this.#ends.dead,
      attempts: this.#ends.attempts,
    });
    // A handler that ended for good may have left children behind.
    if (this.#ends.dead.length > 0) await haveChildrenFollow(tx, { tenantId, runId });
    const skipped = graph.skipped.map((ordinal) => ({
      sequence: ++this.#ends.sequence,
      type: EVENT_TYPES.TASK_SKIPPED,
      taskId: toTaskId(runId, ordinal),
    }));
    if (this.#ends.attempts.length > 0) await insertAttempts(tx, { tenantId, attempts: this.#ends.attempts });
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
    const ordinals = [...this.#ends.succeeded, ...this.#ends.dead, ...cancelled];
    const back =
      this.#run.state === RUN_STATES.PAUSED ? [...this.#ends.ready, ...this.#ends.scheduled] : this.#ends.scheduled;
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
    const scheduled = this.#ends.scheduled.map((task) => flag(task, task.delayMs));
    if (this.#run.state === RUN_STATES.PAUSED) {
      const held = [...[...this.#ends.ready, ...unblocked].map((task) => flag(task, 0)), ...scheduled];
      if (held.length > 0) await insertHeld(tx, { tenantId, tasks: held, reason: 1 });
      return { routeIds: new Set(), keys: [] };
    }
    if (scheduled.length > 0) await insertScheduled(tx, { tenantId, tasks: scheduled });
    if (this.#ends.ready.length > 0) await insertReady(tx, { tenantId, tasks: this.#ends.ready });
    const placed = await placeTasks(tx, { tenantId, loaded: this.#loaded, tasks: unblocked });
    return { ...placed, routeIds: new Set([...placed.routeIds, ...this.#ends.ready.map((task) => task.routeId)]) };
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
    const dead = this.#ends.dead.length;
    const ended = this.#ends.succeeded.length + dead + skipped + cancelled;
    const failing = this.#ends.dead.filter((ordinal) => !this.#loaded.definition.tasks[ordinal]!.allowFailure).length;
    const isEnded = this.#run.open_count === ended;
    const hasFailed = this.#run.failing_count + failing > 0;
    const endState = hasFailed ? RUN_STATES.FAILED : RUN_STATES.SUCCEEDED;
    if (ended === 0 && this.#ends.sequence === this.#run.sequence) return false;
    await changeRun(this.#tx, {
      tenantId: this.#tenantId,
      runId: this.#run.id,
      state: isEnded ? endState : this.#run.state,
      sequence: this.#ends.sequence + (isEnded ? 1 : 0),
      ended,
      dead,
      skipped,
      cancelled,
      failing,
      isTerminal: isEnded,
      failure: this.#ends.failure,
    });
    if (isEnded) {
      this.#ends.events.push(
        runMove(++this.#ends.sequence, hasFailed ? EVENT_TYPES.RUN_FAILED : EVENT_TYPES.RUN_SUCCEEDED),
      );
    }
    return isEnded;
  }

  async #writeEvents(skipped: readonly { sequence: number; type: number; taskId: bigint }[], isEnded: boolean) {
    const events = [...this.#ends.events.slice(0, isEnded ? -1 : undefined), ...skipped.map(taskMove)];
    if (isEnded) events.push(this.#ends.events.at(-1)!);
    if (events.length === 0) return;
    const { id: runId, definition_id: definitionId } = this.#run;
    await insertEvents(this.#tx, { tenantId: this.#tenantId, runId, definitionId, events });
  }
}
