import { MeshError } from "@runmesh/domain/errors";
import { ordinalOf, runIdOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { MESH_ERROR_TYPES } from "@runmesh/domain/retry";
import type { Log } from "@runmesh/platform/log";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { workThrough } from "@runmesh/platform/work-through";
import { appendLogs, type NewLogLine } from "@runmesh/store/attempt-logs";
import { type Completion, completeLeases, type Dependent } from "@runmesh/store/complete-leases";
import { completeLimited, type LimitedCompletion } from "@runmesh/store/complete-limited";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { type ExplainedLease, explainLeases, type LeaseKey } from "@runmesh/store/leases";
import { hasTaskLimits, isLimited } from "@runmesh/store/limits";
import { lockHeldLeases } from "@runmesh/store/lock-leases";
import { releaseLeases } from "@runmesh/store/release-leases";
import { findRunDefinitions } from "@runmesh/store/runs";
import { type EndedLease, type LeaseError, settleRun } from "@runmesh/store/settle-run";
import { forgetFailures } from "@runmesh/store/step-failures";
import { Completer, type CompleterOptions } from "./completer.ts";
import { RunLimits } from "./run-limits.ts";
import type { Session } from "./sessions.ts";

export interface ReportsOptions {
  readonly hot: Db;
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
  readonly log: Log;
}

export interface CompletedItem extends LeaseKey {
  readonly output: Buffer | undefined;
  readonly log: readonly NewLogLine[];
}

export interface FailedItem extends LeaseKey {
  readonly error: LeaseError;
  readonly retryAfterMs: number;
  readonly log: readonly NewLogLine[];
  /** Positions of recorded failures that ended the handler, and from which on calls followed from them. */
  readonly forget: { readonly positions: readonly number[]; readonly from: number };
}

/** Accepted, or why not. */
export type ItemOutcome = "accepted" | MeshError;

/** Runs settled at once by one call. */
const MAX_SETTLING = 4;

/** What workers say of the ends of their leases (G1). */
export class Reports {
  readonly #options: ReportsOptions;
  readonly #completer: Completer<Completion>;
  /** Of runs that have to do with limits. */
  readonly #limitedCompleter: Completer<LimitedCompletion>;
  readonly #runLimits: RunLimits;

  constructor(options: ReportsOptions) {
    this.#options = options;
    const { hot, log, wakeups } = options;
    const onCompleted: CompleterOptions<Completion>["onCompleted"] = ({ runIds, endedRuns, wokenRoutes }) => {
      for (const route of wokenRoutes) wakeups.notify(`ready:${route}`);
      for (const runId of runIds) wakeups.notify(`run:${runId}`);
      for (const runId of endedRuns) wakeups.notify(`ended:${runId}`);
      wakeups.notify("outbox");
    };
    this.#completer = new Completer({ complete: (p) => completeLeases(hot, p), log, onCompleted });
    this.#limitedCompleter = new Completer({ complete: (p) => completeLimited(options, p), log, onCompleted });
    this.#runLimits = new RunLimits(hot);
  }

  async complete(session: Session, items: readonly CompletedItem[]): Promise<ItemOutcome[]> {
    await this.#keepLogs(session, items);
    const loaded = await this.#load(session, items);
    const outcomes = await Promise.all(items.map((item, i) => this.#completeOne(session, item, loaded[i])));
    return this.#explain(session, items, outcomes);
  }

  async fail(session: Session, items: readonly FailedItem[]): Promise<ItemOutcome[]> {
    await this.#keepLogs(session, items);
    await this.#forget(session, items);
    const ends = items.map((item) => ({ ...item, outcome: "FAILED" as const }));
    const accepted = await this.#settle(session, ends);
    return this.#explain(
      session,
      items,
      items.map((item) => accepted.has(item.taskId)),
    );
  }

  async release(session: Session, leases: readonly LeaseKey[]): Promise<ItemOutcome[]> {
    const { tenantId, id: sessionId } = session;
    const released = await releaseLeases(this.#options.hot, { tenantId, sessionId, leases });
    for (const taskId of released.taskIds) session.held.delete(taskId);
    for (const route of released.routeIds) this.#options.wakeups.notify(`ready:${route}`);
    return this.#explain(
      session,
      leases,
      leases.map((lease) => released.taskIds.has(lease.taskId)),
    );
  }

  /** A lease whose params refer to what is not there: the task fails with the path, and is not tried again. */
  async failUnresolved(session: Session, lease: LeaseKey, message: string): Promise<void> {
    const error = {
      type: MESH_ERROR_TYPES.UNRESOLVED_REFERENCE,
      message: Buffer.from(message),
      retryable: false,
      details: null,
    };
    await this.#settle(session, [{ taskId: lease.taskId, fence: lease.fence, outcome: "FAILED", error }]);
  }

  async #completeOne(session: Session, item: CompletedItem, loaded: LoadedDefinition | undefined): Promise<boolean> {
    if (loaded === undefined) return false;
    const { tenantId, id: sessionId } = session;
    const { taskId, fence, output } = item;
    if (!loaded.plan.isFastPath(ordinalOf(taskId))) {
      return (await this.#settle(session, [{ taskId, fence, outcome: "SUCCEEDED", output }])).has(taskId);
    }
    const dependents = listDependents(loaded, taskId);
    const completion = { taskId, fence, sessionId, output, dependents };
    const accepted = await (isLimited(loaded)
      ? this.#completeLimited(tenantId, loaded, completion)
      : this.#completer.complete(tenantId, completion));
    if (accepted) session.held.delete(taskId);
    return accepted;
  }

  async #completeLimited(tenantId: number, loaded: LoadedDefinition, completion: Completion): Promise<boolean> {
    const taskIds = completion.dependents.map((dependent) => dependent.taskId);
    const limits = await this.#runLimits.of(tenantId, loaded, taskIds);
    const dependents = completion.dependents.map((dependent, i) => ({ ...dependent, limits: limits[i]! }));
    return this.#limitedCompleter.complete(tenantId, {
      ...completion,
      dependents,
      sharesLimit: loaded.definition.concurrency !== undefined,
      hasSlots: hasTaskLimits(loaded),
    });
  }

  /** Ends leases run by run, under each run's lock. */
  async #settle(session: Session, ends: readonly EndedLease[]): Promise<Set<bigint>> {
    const { tenantId, id: sessionId } = session;
    const accepted = new Set<bigint>();
    const runs = Map.groupBy(ends, (end) => runIdOf(end.taskId));
    await workThrough(runs, MAX_SETTLING, async ([runId, ended]) => {
      const leases = [...ended].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
      const outcome = await settleRun(
        { db: this.#options.db, definitions: this.#options.definitions, random: Math.random },
        { tenantId, runId, ended, lockLeases: (tx) => lockHeldLeases(tx, { tenantId, sessionId, leases }) },
      );
      if (outcome.kind !== "settled") return;
      for (const taskId of outcome.accepted) {
        accepted.add(taskId);
        session.held.delete(taskId);
      }
      hintSettled(this.#options.wakeups, runId, outcome);
    });
    return accepted;
  }

  /** The definitions of the items' runs: as handed out, else from the database (another process handed them out). */
  async #load(session: Session, items: readonly LeaseKey[]): Promise<(LoadedDefinition | undefined)[]> {
    const { tenantId } = session;
    const unknown = items.filter((item) => !session.held.has(item.taskId)).map((item) => runIdOf(item.taskId));
    const runs = new Map<bigint, LoadedDefinition>();
    if (unknown.length > 0) {
      const { hot, definitions } = this.#options;
      const runIds = [...new Set(unknown)];
      for (const run of await findRunDefinitions(hot, { tenantId, runIds })) {
        runs.set(run.run_id, await definitions.get(tenantId, run.definition_id));
      }
    }
    return items.map((item) => session.held.get(item.taskId)?.loaded ?? runs.get(runIdOf(item.taskId)));
  }

  /** A crash after this is no loss: the next attempt tries anew what would have failed the same. */
  async #forget({ tenantId, id: sessionId }: Session, items: readonly FailedItem[]): Promise<void> {
    for (const { taskId, fence, forget } of items) {
      if (forget.positions.length === 0) continue;
      await forgetFailures(this.#options.hot, { tenantId, sessionId, taskId, fence, ...forget });
    }
  }

  /** Log lines go before the end of their lease, which fences them. */
  async #keepLogs(session: Session, items: readonly { readonly log: readonly NewLogLine[] }[]): Promise<void> {
    const lines = items.flatMap((item) => item.log);
    if (lines.length === 0) return;
    await appendLogs(this.#options.hot, { tenantId: session.tenantId, sessionId: session.id, lines });
  }

  /**
   * Why items were not accepted: a repetition of an accepted completion answers as the first did. A completion whose lease
   * is held is settled by itself: the merged statement passes over a run that is paused, though it may be resumed by now,
   * and over what may end a child run.
   */
  async #explain(
    session: Session,
    items: readonly (LeaseKey & { readonly output?: Buffer | undefined })[],
    accepted: readonly boolean[],
  ): Promise<ItemOutcome[]> {
    const refused = items.filter((_, i) => !accepted[i]);
    if (refused.length === 0) return items.map(() => "accepted");
    const { tenantId, id: sessionId } = session;
    const rows = await explainLeases(this.#options.hot, { tenantId, sessionId, leases: refused });
    const found = new Map(rows.map((row) => [`${row.task_id}/${row.fence}`, row]));
    return Promise.all(
      items.map(async (item, i): Promise<ItemOutcome> => {
        let row = found.get(`${item.taskId}/${item.fence}`);
        const isCompletion = "output" in item;
        if (accepted[i] || (isCompletion && row?.succeeded)) return "accepted";
        if (isCompletion && row?.lease_fence === item.fence) {
          const end = { ...item, outcome: "SUCCEEDED" as const };
          if ((await this.#settle(session, [end])).has(item.taskId)) return "accepted";
          [row] = await explainLeases(this.#options.hot, { tenantId, sessionId, leases: [item] });
          if (row?.succeeded) return "accepted";
        }
        session.drop(item);
        return explain(item, row);
      }),
    );
  }
}

function explain({ taskId, fence }: LeaseKey, row: ExplainedLease | undefined): MeshError {
  const state = row?.run_state ?? undefined;
  const ended = state !== undefined && state !== 2 && state !== 3;
  if (row?.lease_fence === fence) return new MeshError("LEASE_EXPIRED", `the lease ${fence} of task ${taskId} ran out`);
  if (ended) return new MeshError("RUN_NOT_ACTIVE", `the run of task ${taskId} has ended`);
  return new MeshError("FENCE_STALE", `fence ${fence} of task ${taskId} is not current`);
}

/** Hints that follow from a settled run. */
export function hintSettled(
  wakeups: Wakeups,
  runId: bigint,
  settled: {
    readonly wokenRoutes: ReadonlySet<number>;
    readonly lost: readonly { readonly sessionId: bigint }[];
    readonly isEnded: boolean;
  },
): void {
  for (const route of settled.wokenRoutes) wakeups.notify(`ready:${route}`);
  for (const sessionId of new Set(settled.lost.map((lease) => lease.sessionId))) wakeups.notify(`lost:${sessionId}`);
  wakeups.notify(`run:${runId}`);
  if (settled.isEnded) wakeups.notify(`ended:${runId}`);
  wakeups.notify("scheduled");
  wakeups.notify("outbox");
}

function listDependents(loaded: LoadedDefinition, taskId: bigint): Dependent[] {
  const ordinal = ordinalOf(taskId);
  const { offsets, targets } = loaded.plan.dependents;
  const dependents: Dependent[] = [];
  for (let at = offsets[ordinal]!; at < offsets[ordinal + 1]!; at++) {
    const target = targets[at]!;
    const routeId = loaded.routeIds[target]!;
    dependents.push({ taskId: toTaskId(runIdOf(taskId), target), routeId, rank: loaded.ranks[target]! });
  }
  return dependents;
}
