import { MeshError } from "@runmesh/domain/errors";
import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import type { Completion, CompletionOutcome } from "@runmesh/store/complete-leases";

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
  /** Runs of the statements under way: a second statement would find their rows locked. */
  readonly busyRuns: Set<bigint>;
  running: number;
  isScheduled: boolean;
}

const MAX_BATCH = 1_000;
/** Statements of one tenant under way at once: the second fills the wait of the first for the network and the log. */
const MAX_STATEMENTS = 2;

/** Merges completions that arrive at once into one statement for each tenant. */
export class Completer<C extends Completion> {
  readonly #options: CompleterOptions<C>;
  readonly #tenants = new Map<number, Tenant<C>>();

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
        this.#flush(tenantId);
      });
    });
  }

  #flush(tenantId: number): void {
    const tenant = this.#tenants.get(tenantId);
    // The end of another statement took what was scheduled, and it has ended as well.
    if (tenant === undefined) return;
    while (tenant.waiting.length > 0 && tenant.running < MAX_STATEMENTS) {
      const batch = takeBatch(tenant);
      if (batch.length === 0) return;
      const runIds = new Set(batch.map(runOf));
      for (const runId of runIds) tenant.busyRuns.add(runId);
      tenant.running++;
      void this.#run(tenantId, batch).finally(() => {
        for (const runId of runIds) tenant.busyRuns.delete(runId);
        tenant.running--;
        if (tenant.waiting.length > 0) this.#flush(tenantId);
        else if (tenant.running === 0) this.#tenants.delete(tenantId);
      });
    }
  }

  async #run(tenantId: number, batch: readonly Waiting<C>[]): Promise<void> {
    try {
      const skipped = await this.#statement(tenantId, batch, false);
      if (skipped.length > 0) await this.#afterSkip(tenantId, skipped);
    } catch (error) {
      this.#halve(tenantId, batch, error);
    }
  }

  /** Items whose run another move holds go by themselves, run for run, so that one slow move holds up nobody else. */
  async #afterSkip(tenantId: number, skipped: readonly Waiting<C>[]): Promise<void> {
    const runs = Map.groupBy(skipped, runOf);
    await Promise.all(
      [...runs.values()].map(async (items) => {
        try {
          for (const item of await this.#statement(tenantId, items, true)) item.resolve(false);
        } catch (error) {
          this.#halve(tenantId, items, error);
        }
      }),
    );
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

  /** A merged statement that fails is halved until the bad item stands alone; an outage is told to all. */
  #halve(tenantId: number, batch: readonly Waiting<C>[], error: unknown): void {
    if (error instanceof MeshError || batch.length === 1) {
      for (const item of batch) item.reject(error);
      return;
    }
    this.#options.log.warn({ error, items: batch.length }, "a merged completion failed and is halved");
    const middle = Math.ceil(batch.length / 2);
    void this.#run(tenantId, batch.slice(0, middle));
    void this.#run(tenantId, batch.slice(middle));
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
  return [...batch.values()].sort((a, b) => (a.completion.taskId < b.completion.taskId ? -1 : 1));
}
