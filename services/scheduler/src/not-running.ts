import { neighbours } from "@runmesh/domain/graph";
import { ordinalOf, taskId as toTaskId } from "@runmesh/domain/ids";
import {
  type LimitUse,
  type NotRunning,
  type RunFacts,
  type Standing,
  type WorkerFacts,
  whyRunNotRunning,
  whyTaskNotRunning,
} from "@runmesh/domain/not-running";
import { RUN_STATES, TASK_STATES } from "@runmesh/domain/states";
import { countAbleWorkers, findLastAbleWorkers, type Need } from "@runmesh/store/able-workers";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { runSlotKey, slotKey } from "@runmesh/store/limits";
import type { RunRow } from "@runmesh/store/runs";
import {
  findAwaitedRunLimit,
  findNearestStanding,
  findPauseTime,
  listOpenTasks,
  listSlotHolders,
  listStandings,
  type StandingRow,
} from "@runmesh/store/standings";

interface WaitingTask {
  readonly id: bigint;
  readonly state: number;
  readonly pending: number;
}

/** Tasks, runs or keys named in one answer. */
const MAX_NAMED = 20;
/** Dependencies looked up, and needs of workers compared, for one page: tasks beyond have no answer. */
const MAX_DEPENDENCIES = 10_000;
const MAX_NEEDS = 200;

const WAITING: ReadonlySet<number> = new Set([
  TASK_STATES.BLOCKED,
  TASK_STATES.READY,
  TASK_STATES.RETRY_WAIT,
  TASK_STATES.SUSPENDED,
]);

/**
 * Why each task of a page does not run, by its id. Everything is looked up by key, at most once for the page, so it
 * costs what the page costs, however large the run, the mesh or the history is.
 */
export async function explainTasks(
  db: Db,
  tenantId: number,
  run: RunRow,
  loaded: LoadedDefinition,
  tasks: readonly WaitingTask[],
): Promise<Map<bigint, NotRunning>> {
  const answers = new Map<bigint, NotRunning>();
  const waiting = tasks.filter((task) => WAITING.has(task.state));
  if (waiting.length === 0) return answers;
  const placed = waiting.filter((task) => task.state !== TASK_STATES.BLOCKED).map((task) => task.id);
  const rows = placed.length === 0 ? [] : await listStandings(db, { tenantId, taskIds: placed });
  const standings = new Map(rows.map((row) => [row.task_id, row]));
  const facts = await readRunFacts(db, tenantId, run);
  const slots = await readSlots(db, tenantId, rows);
  const workers = await readWorkers(db, tenantId, loaded, rows);
  const open = await readOpenDependencies(db, tenantId, run.id, loaded, waiting);
  for (const task of waiting) {
    const ordinal = ordinalOf(task.id);
    const row = standings.get(task.id);
    // It left its place since the page was read: it runs now, or the next look tells.
    if (row === undefined && task.state !== TASK_STATES.BLOCKED) continue;
    const { handler, queue } = loaded.routes[ordinal]!;
    const pendingKeys = open.get(task.id) ?? [];
    const pendingCount = task.state === TASK_STATES.BLOCKED ? task.pending : 0;
    const why = whyTaskNotRunning({
      handler,
      queue,
      standing: readStanding(row),
      pendingCount,
      pendingKeys,
      run: facts,
      ...readLimits(slots, row),
      workers: workers.get(loaded.routeIds[ordinal]!),
    });
    if (why !== undefined) answers.set(task.id, why);
  }
  return answers;
}

/** Why a run does not run: by itself, or by the task of it that is nearest to running. */
export async function explainRun(
  db: Db,
  tenantId: number,
  run: RunRow,
  loaded: LoadedDefinition,
): Promise<{ readonly why: NotRunning; readonly taskKey: string } | undefined> {
  if (run.state >= RUN_STATES.SUCCEEDED) return undefined;
  const nearest = await findNearestStanding(db, { tenantId, runId: run.id });
  if (nearest?.place === "lease") return undefined;
  const own = whyRunNotRunning(await readRunFacts(db, tenantId, run));
  if (own !== undefined) return { why: own, taskKey: "" };
  if (nearest === undefined) return undefined;
  const state = nearest.place === "suspended" ? TASK_STATES.SUSPENDED : TASK_STATES.READY;
  const task = { id: nearest.task_id, state, pending: 0 };
  const why = (await explainTasks(db, tenantId, run, loaded, [task])).get(nearest.task_id);
  return why && { why, taskKey: loaded.plan.keys[ordinalOf(nearest.task_id)]! };
}

async function readRunFacts(db: Db, tenantId: number, run: RunRow): Promise<RunFacts> {
  const p = { tenantId, runId: run.id };
  const isPending = run.state === RUN_STATES.PENDING;
  const limit = isPending ? await findAwaitedRunLimit(db, { ...p, most: MAX_NAMED }) : undefined;
  return {
    isPending,
    isDue: limit?.is_due ?? false,
    dueAt: run.due_at ?? undefined,
    pausedAt: run.state === RUN_STATES.PAUSED ? (await findPauseTime(db, p))?.at : undefined,
    limit: limit && {
      key: limit.key,
      limit: limit.slot_limit,
      inUse: limit.count,
      holders: limit.run_ids,
      position: limit.position,
    },
  };
}

type Slots = ReadonlyMap<string, { readonly count: number; readonly task_ids: readonly bigint[] }>;

async function readSlots(db: Db, tenantId: number, rows: readonly StandingRow[]): Promise<Slots> {
  const keys = new Set(rows.filter((row) => row.place === "held").flatMap(awaitedKeys));
  if (keys.size === 0) return new Map();
  const found = await listSlotHolders(db, { tenantId, keys: [...keys], most: MAX_NAMED });
  return new Map(found.map((row) => [row.key, row]));
}

function awaitedKeys(row: StandingRow): string[] {
  if (row.reason === 2 && row.concurrency_key !== null) return [slotKey(row.concurrency_key)];
  return row.reason === 3 ? [runSlotKey(row.task_id >> 20n)] : [];
}

function readLimits(
  slots: Slots,
  row: StandingRow | undefined,
): {
  key: LimitUse<bigint> | undefined;
  maxParallel: { limit: number; inUse: number } | undefined;
} {
  const [name] = row?.place === "held" ? awaitedKeys(row) : [];
  const found = name === undefined ? undefined : slots.get(name);
  if (row === undefined || found === undefined) return { key: undefined, maxParallel: undefined };
  if (row.reason === 3) {
    return { key: undefined, maxParallel: { limit: row.run_limit ?? 0, inUse: found.count } };
  }
  const limit = row.slot_limit ?? 0;
  return {
    key: { key: row.concurrency_key ?? "", limit, inUse: found.count, holders: found.task_ids },
    maxParallel: undefined,
  };
}

/** The workers that are there, by route. */
async function readWorkers(
  db: Db,
  tenantId: number,
  loaded: LoadedDefinition,
  rows: readonly StandingRow[],
): Promise<Map<number, WorkerFacts>> {
  const routes = new Map<number, Need>();
  for (const { task_id: taskId, place } of rows) {
    const ordinal = ordinalOf(taskId);
    if (place === "ready" && routes.size < MAX_NEEDS) routes.set(loaded.routeIds[ordinal]!, loaded.routes[ordinal]!);
  }
  if (routes.size === 0) return new Map();
  const needs = [...routes.values()];
  const counts = await countAbleWorkers(db, { tenantId, needs });
  const lonely = counts.some((count) => count.able === 0);
  const seen = lonely ? await findLastAbleWorkers(db, { tenantId, needs }) : [];
  return new Map(
    [...routes.keys()].map((route, i) => {
      const { with_handler: withHandler, on_queue: onQueue, able, slots, slots_used: slotsUsed, lacking } = counts[i]!;
      const lastSeenAt = seen[i]?.seen_at ?? undefined;
      return [route, { withHandler, onQueue, able, slots, slotsUsed, lacking: lacking ?? [], lastSeenAt }];
    }),
  );
}

/** Keys of dependencies that have not ended, by task. Where none has ended, nothing is looked up. */
async function readOpenDependencies(
  db: Db,
  tenantId: number,
  runId: bigint,
  { plan }: LoadedDefinition,
  tasks: readonly WaitingTask[],
): Promise<Map<bigint, string[]>> {
  const named = new Map<bigint, string[]>();
  const mixed = new Map<bigint, number[]>();
  const wanted = new Set<number>();
  for (const { id, state, pending } of tasks) {
    if (state !== TASK_STATES.BLOCKED || pending === 0) continue;
    const dependencies = [...neighbours(plan.dependencies, ordinalOf(id))];
    if (pending >= dependencies.length) {
      named.set(
        id,
        dependencies.slice(0, MAX_NAMED).map((ordinal) => plan.keys[ordinal]!),
      );
    } else if (wanted.size + dependencies.length <= MAX_DEPENDENCIES) {
      mixed.set(id, dependencies);
      for (const ordinal of dependencies) wanted.add(ordinal);
    }
  }
  if (mixed.size === 0) return named;
  const taskIds = [...wanted].map((ordinal) => toTaskId(runId, ordinal));
  const open = new Set((await listOpenTasks(db, { tenantId, taskIds })).map((row) => ordinalOf(row.id)));
  for (const [id, dependencies] of mixed) {
    const keys = dependencies.filter((ordinal) => open.has(ordinal)).map((ordinal) => plan.keys[ordinal]!);
    named.set(id, keys.slice(0, MAX_NAMED));
  }
  return named;
}

const HELD_FOR = { 1: "pause", 2: "key", 3: "max_parallel" } as const;

function readStanding(row: StandingRow | undefined): Standing {
  switch (row?.place) {
    case undefined:
      return { place: "nowhere" };
    case "lease":
      return { place: "leased" };
    case "ready":
      return { place: "ready", readyAt: row.at };
    case "held":
      return { place: "held", heldFor: HELD_FOR[row.reason as keyof typeof HELD_FOR], heldAt: row.at };
    case "scheduled":
      return { place: "scheduled", dueAt: row.at };
    case "suspended":
      return {
        place: "suspended",
        since: row.at,
        until: row.wake_at ?? undefined,
        signal: row.signal ?? "",
        childRunId: row.child_run_id ?? 0n,
      };
  }
}
