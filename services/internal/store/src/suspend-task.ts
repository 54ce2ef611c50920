import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import { ATTEMPT_OUTCOMES, EVENT_TYPES, RUN_STATES } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { appendLogs, type NewLogLine } from "./attempt-logs.ts";
import { insertAttempts } from "./attempts.ts";
import { changeRun } from "./change-run.ts";
import { findChildAnswer } from "./child-end.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { keepProgress, type LeaseRow } from "./leases.ts";
import { isLimited } from "./limits.ts";
import { deleteLeases, lockHeldLeases } from "./lock-leases.ts";
import { type LockedRun, lockRuns } from "./lock-run.ts";
import { insertEvents } from "./outbox-write.ts";
import { listOpenRuns } from "./runs.ts";
import { takeSignals } from "./signals.ts";
import { freeSlots } from "./slots.ts";
import { adoptLoose } from "./step-failures.ts";
import { answerWaits, insertWaits } from "./step-waits.ts";
import { findSteps, STEP_KINDS, STEP_OUTCOMES, type StepCall, type StepRow } from "./steps.ts";
import { insertSuspended } from "./suspended.ts";
import { NOTHING_PLACED } from "./wake-tasks.ts";

/**
 * Suspends a task until something that its handler waits for has come. Invariants:
 *   1. The locks of its run and of the child runs that it waits for, in ascending order, are held from before the look
 *      at what has come until the task is suspended. Signals and ends of children come under these locks: either they
 *      are seen here, or they find the task suspended. No wake-up is lost.
 *   2. A signal is taken in the transaction that records it as an answer (I-12).
 *   3. It burns neither an attempt nor a loss: both counters stay as they were.
 *   4. Slots are given back, and the next that waits for them is admitted.
 */
export interface SuspendTask {
  readonly tenantId: number;
  readonly sessionId: bigint;
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly waits: readonly WaitCall[];
  readonly log: readonly NewLogLine[];
  readonly progress: Buffer | undefined;
  /** Answers what is over, and leaves the task where nothing is. */
  readonly stay: boolean;
}

export interface WaitCall extends StepCall {
  readonly durationMs: number | null;
  /** Of a result: where the child was started. */
  readonly childPosition: number | undefined;
}

export type SuspendOutcome =
  /** The lease is not (any more) what was named. */
  | { readonly kind: "refused" }
  /** A wait names a call that is recorded as another, or a child that was not started. */
  | { readonly kind: "mismatch"; readonly position: number }
  | { readonly kind: "answered"; readonly steps: readonly StepRow[] }
  | { readonly kind: "suspended"; readonly wokenRoutes: ReadonlySet<number> };

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

export function suspendTask({ db, definitions }: Deps, p: SuspendTask): Promise<SuspendOutcome> {
  return db.transaction(async (tx) => {
    const { tenantId, sessionId, taskId, fence } = p;
    const runId = runIdOf(taskId);
    // Its own record, and a child that was started stays the same: both may be read before the locks.
    const children = await readChildren(tx, p);
    // Of a task that stays no wake-up can be lost: its children are not held up.
    const locked = p.stay ? [runId] : [...new Set([runId, ...children.values()])].sort(ascending);
    const runs = await lockRuns(tx, { tenantId, runIds: locked });
    const run = runs.find((row) => row.id === runId);
    if (run?.state !== RUN_STATES.RUNNING && run?.state !== RUN_STATES.PAUSED) return { kind: "refused" };
    const [lease] = await lockHeldLeases(tx, { tenantId, sessionId, leases: [{ taskId, fence }] });
    if (lease === undefined) return { kind: "refused" };
    const waits = p.waits.map((wait) => ({ ...wait, childRunId: childOf(wait, children) ?? null }));
    const lost = waits.find((wait) => wait.kind === STEP_KINDS.RESULT && wait.childRunId === null);
    if (lost !== undefined) return { kind: "mismatch", position: lost.position };
    await adoptLoose(tx, { tenantId, taskId, calls: waits });
    await insertWaits(tx, { tenantId, taskId, waits });
    const steps = await findSteps(tx, { tenantId, taskId, positions: waits.map((wait) => wait.position) });
    const other = waits.find((wait) => !steps.some((step) => isSame(step, wait)));
    if (other !== undefined) return { kind: "mismatch", position: other.position };
    const answered = await answer(tx, definitions, p, steps);
    if (answered.length > 0 || p.stay) return { kind: "answered", steps: answered };
    return { kind: "suspended", wokenRoutes: await suspend(tx, definitions, p, run, lease, steps[0]!) };
  });
}

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : 1);

const childOf = (wait: WaitCall, children: ReadonlyMap<number, bigint>): bigint | undefined =>
  wait.childPosition === undefined ? undefined : children.get(wait.childPosition);

const isSame = (step: StepRow, wait: WaitCall): boolean =>
  step.position === wait.position &&
  step.kind === wait.kind &&
  step.name === wait.name &&
  step.occurrence === wait.occurrence;

async function readChildren(tx: Db, p: SuspendTask): Promise<Map<number, bigint>> {
  const positions = p.waits.flatMap((wait) => (wait.childPosition === undefined ? [] : [wait.childPosition]));
  if (positions.length === 0) return new Map();
  const rows = await findSteps(tx, { tenantId: p.tenantId, taskId: p.taskId, positions });
  const started = rows.filter((row) => row.kind === STEP_KINDS.CHILD && row.child_run_id !== null);
  return new Map(started.map((row) => [row.position, row.child_run_id!]));
}

/** The lease is locked, and renewals of its worker's other leases wait for it: what else has come is asked for again. */
const MAX_ANSWERED = 100;

/** Answers waits that are over already, and answers those steps: recorded ones, times, signals and ends of children. */
async function answer(
  tx: Db,
  definitions: DefinitionCache,
  p: SuspendTask,
  steps: readonly (StepRow & { due_at: Date | null })[],
): Promise<StepRow[]> {
  const { tenantId, taskId } = p;
  const open = steps.filter((step) => step.done === null);
  const answers: { position: number; outcome: number; value: Buffer | null }[] = [];
  const signals = open.filter((step) => step.kind === STEP_KINDS.SIGNAL);
  const byName = Map.groupBy(signals, (step) => step.name);
  const names = [...byName.keys()];
  const counts = names.map((name) => byName.get(name)!.length);
  const taken = names.length === 0 ? [] : await takeSignals(tx, { tenantId, runId: runIdOf(taskId), names, counts });
  for (const { name, value } of taken) {
    const { position } = byName.get(name)!.shift()!;
    answers.push({ position, outcome: STEP_OUTCOMES.ANSWERED, value });
  }
  const results = open.filter(({ kind }) => kind === STEP_KINDS.RESULT);
  const runIds = [...new Set(results.map((step) => step.child_run_id!))];
  const openRuns = runIds.length === 0 ? [] : await listOpenRuns(tx, { tenantId, runIds });
  const goOn = new Set(openRuns.map((row) => row.id));
  for (const step of results) {
    if (goOn.has(step.child_run_id!)) continue;
    if (answers.length >= MAX_ANSWERED) break;
    const end = await findChildAnswer(tx, definitions, { tenantId, runId: step.child_run_id! });
    if (end !== undefined) answers.push({ position: step.position, ...end });
  }
  const due = await findDue(tx, open);
  for (const step of due) {
    if (answers.some((other) => other.position === step.position)) continue;
    const outcome = step.kind === STEP_KINDS.SLEEP ? STEP_OUTCOMES.ANSWERED : STEP_OUTCOMES.TIMED_OUT;
    answers.push({ position: step.position, outcome, value: null });
  }
  if (answers.length > 0) await answerWaits(tx, { tenantId, taskId, answers });
  const positions = [
    ...answers.map((answered) => answered.position),
    ...steps.filter((step) => step.done !== null).map((step) => step.position),
  ];
  return positions.length === 0 ? [] : findSteps(tx, { tenantId, taskId, positions });
}

async function findDue<T extends { readonly due_at: Date | null }>(tx: Db, open: readonly T[]): Promise<T[]> {
  if (open.every((step) => step.due_at === null)) return [];
  const { now } = await tx.one<{ now: Date }>("clock", "SELECT clock_timestamp() AS now", []);
  return open.filter((step) => step.due_at !== null && step.due_at <= now);
}

async function suspend(
  tx: Db,
  definitions: DefinitionCache,
  p: SuspendTask,
  run: LockedRun,
  lease: LeaseRow,
  first: StepRow,
): Promise<ReadonlySet<number>> {
  const { tenantId, sessionId, taskId, fence } = p;
  const { id: runId, definition_id: definitionId } = run;
  const leases = [{ taskId, fence }];
  if (p.log.length > 0) await appendLogs(tx, { tenantId, sessionId, lines: p.log });
  if (p.progress !== undefined) await keepProgress(tx, { tenantId, sessionId, leases, progress: [p.progress] });
  const loaded = await definitions.get(tenantId, definitionId);
  const { route_id: routeId, attempt, failures, losses } = lease;
  await insertSuspended(tx, {
    tenantId,
    task: { taskId, routeId, rank: loaded.ranks[ordinalOf(taskId)]!, attempt, failures, losses },
    first: {
      waitsFor: SHOWN[first.kind]!,
      name: first.kind === STEP_KINDS.SIGNAL ? first.name : null,
      childRunId: first.child_run_id,
    },
    paused: run.state === RUN_STATES.PAUSED,
  });
  await deleteLeases(tx, { tenantId, taskIds: [taskId] });
  const sequence = run.sequence + 1;
  const moved = {
    taskId,
    fence,
    sessionId,
    leasedAt: lease.leased_at,
    startedAt: lease.started_at ?? lease.leased_at,
    outcome: ATTEMPT_OUTCOMES.SUSPENDED,
    sequence,
    errorType: null,
    retryAfterMs: null,
  };
  const ended = { number: attempt, output: null, errorMessage: null, errorDetails: null, retryable: null };
  const eventType = EVENT_TYPES.TASK_SUSPENDED;
  const progress = p.progress ?? lease.progress;
  await insertAttempts(tx, { tenantId, attempts: [{ ...moved, ...ended, eventType, progress }] });
  const unchanged = { ended: 0, dead: 0, skipped: 0, cancelled: 0, failing: 0, isTerminal: false, failure: undefined };
  await changeRun(tx, { tenantId, runId, state: run.state, sequence, ...unchanged });
  await insertEvents(tx, { tenantId, runId, definitionId, events: [{ ...moved, attempt, type: eventType }] });
  const freed = isLimited(loaded) ? await freeSlots(tx, { tenantId, taskIds: [taskId] }) : [];
  return admitTo(tx, { tenantId, placed: NOTHING_PLACED, freed });
}

/** `suspended.waits_for`: 1 sleep, 2 signal, 3 child. */
const SHOWN: Readonly<Record<number, number>> = {
  [STEP_KINDS.SLEEP]: 1,
  [STEP_KINDS.SIGNAL]: 2,
  [STEP_KINDS.RESULT]: 3,
};
