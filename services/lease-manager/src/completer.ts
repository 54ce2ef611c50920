import { MeshError } from "@runmesh/domain/errors";
import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import type { Completion, CompletionOutcome } from "@runmesh/store/complete-leases";
import { toRepeat } from "@runmesh/store/store-errors";
import { Patience } from "./patience.ts";

export interface CompleterOptions<C extends Completion> {
  /** The merged statement: distinct tasks of one tenant, in ascending order of their ids. */
  readonly complete: (p: {
    tenantId: number;
    completions: readonly C[];
    mayWait: boolean;
  }) => Promise<CompletionOutcome>;
  readonly log: Log;
  /** Told after each statement: what to hint at. */
  readonly onCompleted: (done: {
    readonly runIds: ReadonlySet<bigint>;
    readonly endedRuns: readonly bigint[];
    readonly wokenRoutes: readonly number[];
  }) => void;
}

interface Waiting<C extends Completion> {
  readonly completion: C;
  readonly resolve: (accepted: boolean) => void;
  readonly reject: (error: unknown) => void;
}

interface Tenant<C extends Completion> {
  readonly waiting: Waiting<C>[];
  /** Runs with items under way: a second statement would find their rows locked. */
  readonly busyRuns: Set<bigint>;
  running: number;
  isScheduled: boolean;
}

const MAX_BATCH = 1_000;
/** Statements of one tenant under way at once: the second fills the wait of the first for the network and the log. */
const MAX_STATEMENTS = 2;
/** Statements, of every tenant, that wait for runs which other moves hold: they leave connections to the others. */
const MAX_PATIENT = 3;
/** Items that cannot be among these for so long are tried again with the others. */
const RETRY_MS = 50;

/**
 * Merges completions that arrive at once into one statement for each tenant. Invariants:
 *   1. Each item is answered: by the statement that takes it, or by its error.
 *   2. Of a run, items are in one statement at a time.
 *   3. A merged statement passes over runs that other moves hold. What waits for these is not among the statements that
 *      a tenant may have, and few wait at once: one slow move, or many, hold up no other run.
 */
export class Completer<C extends Completion> {
  readonly #options: CompleterOptions<C>;
  readonly #tenants = new Map<number, Tenant<C>>();
  readonly #patience = new Patience(MAX_PATIENT);

  constructor(options: CompleterOptions<C>) {
    this.#options = options;
  }

  /** Whether the completion counted. One that did not may still count: a paused run, or a repetition. */
  complete(tenantId: number, completion: C): Promise<boolean> {
    return new Promise((resolve, reject) => {
      let tenant = this.#tenants.get(tenantId);
      if (tenant === undefined) {
        tenant = { waiting: [], busyRuns: new Set(), running: 0, isScheduled: false };
        this.#tenants.set(tenantId, tenant);
      }
      tenant.waiting.push({ completion, resolve, reject });
      if (tenant.isScheduled || tenant.running >= MAX_STATEMENTS) return;
      tenant.isScheduled = true;
      // What arrives in this turn of the event loop goes along.
      setImmediate(() => {
        tenant.isScheduled = false;
        this.#goOn(tenantId, tenant);
      });
    });
  }

  #goOn(tenantId: number, tenant: Tenant<C>): void {
    while (tenant.waiting.length > 0 && tenant.running < MAX_STATEMENTS) {
      const batch = takeBatch(tenant);
      if (batch.length === 0) return;
      tenant.running++;
      void this.#run(tenantId, tenant, batch);
    }
    const isIdle = tenant.waiting.length === 0 && tenant.busyRuns.size === 0 && !tenant.isScheduled;
    if (isIdle) this.#tenants.delete(tenantId);
  }

  async #run(tenantId: number, tenant: Tenant<C>, batch: readonly Waiting<C>[]): Promise<void> {
    const skipped = Map.groupBy(await this.#send(tenantId, batch, false), runOf);
    tenant.running--;
    for (const item of batch) if (!skipped.has(runOf(item))) tenant.busyRuns.delete(runOf(item));
    for (const [runId, items] of skipped) void this.#afterSkip(tenantId, tenant, runId, items);
    this.#goOn(tenantId, tenant);
  }

  /** Items whose run another move holds go by themselves, run for run (invariant 3). */
  async #afterSkip(tenantId: number, tenant: Tenant<C>, runId: bigint, items: readonly Waiting<C>[]): Promise<void> {
    if (await this.#patience.enter(RETRY_MS)) {
      for (const item of await this.#send(tenantId, items, true)) item.resolve(false);
      this.#patience.leave();
    } else {
      tenant.waiting.push(...items);
    }
    tenant.busyRuns.delete(runId);
    this.#goOn(tenantId, tenant);
  }

  /**
   * Sends one statement; answers the items that it passed over. One that fails is halved until the bad item stands alone;
   * an outage, or a lock that did not come in time, is told to all.
   */
  async #send(tenantId: number, batch: readonly Waiting<C>[], mayWait: boolean): Promise<readonly Waiting<C>[]> {
    try {
      return await this.#statement(tenantId, batch, mayWait);
    } catch (error) {
      const told = toRepeat(error);
      if (told instanceof MeshError || batch.length === 1) {
        for (const item of batch) item.reject(told);
        return [];
      }
      this.#options.log.warn({ error, items: batch.length }, "a merged completion failed and is halved");
      const middle = Math.ceil(batch.length / 2);
      const skipped = await this.#send(tenantId, batch.slice(0, middle), mayWait);
      return [...skipped, ...(await this.#send(tenantId, batch.slice(middle), mayWait))];
    }
  }

  /** Runs one statement, resolves what counted and answers the rest. */
  async #statement(tenantId: number, batch: readonly Waiting<C>[], mayWait: boolean): Promise<Waiting<C>[]> {
    const completions = batch.map((item) => item.completion);
    const outcome = await this.#options.complete({ tenantId, completions, mayWait });
    const runIds = new Set<bigint>();
    for (const taskId of outcome.accepted) runIds.add(taskId >> 20n);
    // Whoever waits for what follows hears of it before the worker does.
    if (runIds.size > 0) this.#options.onCompleted({ runIds, ...outcome });
    const rest: Waiting<C>[] = [];
    for (const item of batch) {
      if (outcome.accepted.has(item.completion.taskId)) item.resolve(true);
      else rest.push(item);
    }
    return rest;
  }
}

const runOf = (item: Waiting<Completion>): bigint => runIdOf(item.completion.taskId);

/** Takes up to 1,000 items of distinct tasks, ascending; twins of a task, and tasks of busy runs, wait for a later one. */
function takeBatch<C extends Completion>({ waiting, busyRuns }: Tenant<C>): Waiting<C>[] {
  const batch = new Map<bigint, Waiting<C>>();
  const rest: Waiting<C>[] = [];
  for (const item of waiting) {
    const { taskId } = item.completion;
    if (batch.size < MAX_BATCH && !batch.has(taskId) && !busyRuns.has(runOf(item))) batch.set(taskId, item);
    else rest.push(item);
  }
  waiting.length = 0;
  waiting.push(...rest);
  for (const item of batch.values()) busyRuns.add(runOf(item));
  return [...batch.values()].sort((a, b) => (a.completion.taskId < b.completion.taskId ? -1 : 1));
}
