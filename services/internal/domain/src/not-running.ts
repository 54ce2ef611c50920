/** Where a task that has not ended stands, with what its place says of it. */
export type Standing =
  | { readonly place: "leased" }
  | { readonly place: "ready"; readonly readyAt: Date }
  | { readonly place: "held"; readonly heldFor: "pause" | "key" | "max_parallel"; readonly heldAt: Date }
  | { readonly place: "scheduled"; readonly dueAt: Date }
  | {
      readonly place: "suspended";
      readonly since: Date;
      readonly until: Date | undefined;
      readonly signal: string;
      readonly childRunId: bigint;
    }
  /** In none of the tables: it waits for dependencies, or for its run to begin. */
  | { readonly place: "nowhere" };

/** Slots of a limit, and at most some of those that hold them. */
export interface LimitUse<Holder> {
  readonly key: string;
  readonly limit: number;
  readonly inUse: number;
  readonly holders: readonly Holder[];
}

/** The run that a task belongs to, or that is asked about. */
export interface RunFacts {
  readonly isPending: boolean;
  readonly isDue: boolean;
  readonly dueAt: Date | undefined;
  readonly pausedAt: Date | undefined;
  /** Where the run waits for a limit that it shares with other runs. 1 is the next. */
  readonly limit: (LimitUse<bigint> & { readonly position: number }) | undefined;
}

/** The workers that are there, as one task sees them. */
export interface WorkerFacts {
  readonly withHandler: number;
  readonly onQueue: number;
  /** Those that can run it, their slots, and how many of these hold a lease. */
  readonly able: number;
  readonly slots: number;
  readonly slotsUsed: number;
  /** Capabilities that the worker lacks which lacks the fewest, of those with the handler on the queue. */
  readonly lacking: readonly string[];
  /** When a worker that could run it was last seen. */
  readonly lastSeenAt: Date | undefined;
}

export interface TaskFacts {
  readonly handler: string;
  readonly queue: string;
  readonly standing: Standing;
  /** Dependencies that have not ended: how many, and some of them. */
  readonly pendingCount: number;
  readonly pendingKeys: readonly string[];
  readonly run: RunFacts;
  /** Of its concurrency key, where that holds it. */
  readonly key: LimitUse<bigint> | undefined;
  /** Of its run's `max_parallel`, where that holds it. */
  readonly maxParallel: { readonly limit: number; readonly inUse: number } | undefined;
  /** Where it is ready. */
  readonly workers: WorkerFacts | undefined;
}

/** Why something does not run: the closed list, each with its facts. */
export type NotRunning =
  | { readonly why: "WAITS_FOR_TASKS"; readonly taskKeys: readonly string[]; readonly count: number }
  | { readonly why: "WAITS_FOR_TIME"; readonly until: Date }
  | ({ readonly why: "WAITS_FOR_CONCURRENCY_KEY" } & LimitUse<bigint>)
  | { readonly why: "WAITS_FOR_MAX_PARALLEL"; readonly limit: number; readonly inUse: number }
  | {
      readonly why: "SUSPENDED";
      readonly since: Date;
      readonly until: Date | undefined;
      readonly signal: string;
      readonly childRunId: bigint;
    }
  | { readonly why: "PAUSED"; readonly since: Date }
  | {
      readonly why: "NO_WORKER";
      readonly missing: "HANDLER" | "QUEUE" | "CAPABILITIES";
      readonly handler: string;
      readonly queue: string;
      readonly capabilities: readonly string[];
      readonly since: Date;
    }
  | ({ readonly why: "WORKERS_BUSY" | "CLAIMABLE" } & WorkerUse)
  | ({ readonly why: "WAITS_FOR_RUN_LIMIT"; readonly position: number } & LimitUse<bigint>);

interface WorkerUse {
  readonly workers: number;
  readonly slots: number;
  readonly slotsUsed: number;
  readonly since: Date;
}

/** Why a task does not run; undefined where it does, or stood where its facts were not read. */
export function whyTaskNotRunning(task: TaskFacts): NotRunning | undefined {
  const { standing, run } = task;
  switch (standing.place) {
    case "leased":
      return undefined;
    case "ready":
      return task.workers && whyReady(task, task.workers, standing.readyAt);
    case "held":
      return whyHeld(task, standing.heldFor, standing.heldAt);
    case "scheduled":
      return { why: "WAITS_FOR_TIME", until: standing.dueAt };
    case "suspended": {
      const { since, until, signal, childRunId } = standing;
      return { why: "SUSPENDED", since, until, signal, childRunId };
    }
    case "nowhere":
      if (task.pendingCount === 0) return whyRunNotBegun(run);
      return { why: "WAITS_FOR_TASKS", taskKeys: task.pendingKeys, count: task.pendingCount };
  }
}

/** Why the run itself keeps everything of it from running; undefined where it does not. */
export function whyRunNotRunning(run: RunFacts): NotRunning | undefined {
  return run.pausedAt === undefined ? whyRunNotBegun(run) : { why: "PAUSED", since: run.pausedAt };
}

function whyRunNotBegun({ isPending, isDue, dueAt, limit }: RunFacts): NotRunning | undefined {
  if (!isPending) return undefined;
  if (limit !== undefined && isDue) return { why: "WAITS_FOR_RUN_LIMIT", ...limit };
  return dueAt && { why: "WAITS_FOR_TIME", until: dueAt };
}

function whyHeld(task: TaskFacts, heldFor: "pause" | "key" | "max_parallel", heldAt: Date): NotRunning | undefined {
  if (heldFor === "pause") return { why: "PAUSED", since: task.run.pausedAt ?? heldAt };
  if (heldFor === "key") return task.key && { why: "WAITS_FOR_CONCURRENCY_KEY", ...task.key };
  return task.maxParallel && { why: "WAITS_FOR_MAX_PARALLEL", ...task.maxParallel };
}

/** Nobody who could is never said of workers that are busy, nor the other way round. */
function whyReady({ handler, queue }: TaskFacts, workers: WorkerFacts, readyAt: Date): NotRunning {
  if (workers.able > 0) {
    const { able, slots, slotsUsed } = workers;
    return { why: slotsUsed < slots ? "CLAIMABLE" : "WORKERS_BUSY", workers: able, slots, slotsUsed, since: readyAt };
  }
  const missing = workers.withHandler === 0 ? "HANDLER" : workers.onQueue === 0 ? "QUEUE" : "CAPABILITIES";
  const capabilities = missing === "CAPABILITIES" ? workers.lacking : [];
  const { lastSeenAt } = workers;
  const since = lastSeenAt !== undefined && lastSeenAt > readyAt ? lastSeenAt : readyAt;
  return { why: "NO_WORKER", missing, handler, queue, capabilities, since };
}
