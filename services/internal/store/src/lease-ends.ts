import { ordinalOf } from "@runmesh/domain/ids";
import { decideFailure, type FailureDecision, MESH_ERROR_TYPES } from "@runmesh/domain/retry";
import { ATTEMPT_OUTCOMES, EVENT_TYPES } from "@runmesh/domain/states";
import type { NewAttempt } from "./attempts.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import type { LeaseRow } from "./leases.ts";
import type { NewEvent } from "./outbox-write.ts";
import type { PlacedTask } from "./places.ts";
import type { EndedLease, LeaseError } from "./settle-run.ts";

/** What the ends of a run's leases come to, decided by the domain and not written yet. */
export class LeaseEnds {
  readonly attempts: NewAttempt[] = [];
  readonly events: NewEvent[] = [];
  /** Tasks that run again at once, and later. */
  readonly ready: PlacedTask[] = [];
  readonly scheduled: (PlacedTask & { delayMs: number })[] = [];
  /** Ordinals. */
  readonly succeeded: number[] = [];
  readonly dead: number[] = [];
  /** Of the first task that fails the run. */
  failure: { taskId: bigint; type: string; message: Buffer } | undefined;
  /** The last that an event has; who writes the others goes on from here. */
  sequence: number;
  readonly #loaded: LoadedDefinition;
  readonly #random: () => number;

  constructor(sequence: number, loaded: LoadedDefinition, random: () => number) {
    this.sequence = sequence;
    this.#loaded = loaded;
    this.#random = random;
  }

  /** `isSilentKiller`: a loss counts, though nobody heard of the start. */
  end(lease: LeaseRow, end: EndedLease, isSilentKiller: boolean): void {
    const { outcome } = end;
    if (outcome === "SUCCEEDED") {
      this.succeeded.push(ordinalOf(lease.task_id));
      this.#record(lease, end, EVENT_TYPES.TASK_SUCCEEDED, null, undefined);
    } else if (outcome === "LOST" && lease.started_at === null && !isSilentKiller) {
      this.#record(lease, end, 0, null, undefined);
      const { rank, attempt, ready_at: readyAt } = lease;
      this.ready.push({ ...placed(lease), rank: recovered(rank), attempt, readyAt });
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
      this.dead.push(ordinalOf(lease.task_id));
      if (!this.#loaded.definition.tasks[ordinalOf(lease.task_id)]!.allowFailure) {
        this.failure ??= { taskId: lease.task_id, type: decision.errorType, message: end.error.message };
      }
      return;
    }
    this.#record(lease, end, EVENT_TYPES.TASK_RETRYING, decision.delayMs, undefined);
    if (decision.delayMs > 0) this.scheduled.push({ ...task, delayMs: decision.delayMs });
    else this.ready.push({ ...task, rank: end.outcome === "LOST" ? recovered(task.rank) : task.rank });
  }

  #record(
    lease: LeaseRow,
    end: EndedLease,
    eventType: number,
    retryAfterMs: number | null,
    errorType: string | undefined,
  ): void {
    const sequence = eventType === 0 ? 0 : ++this.sequence;
    const outcome = ATTEMPT_OUTCOMES[end.outcome];
    const startedAt =
      lease.started_at ?? (end.outcome === "SUCCEEDED" || end.outcome === "FAILED" ? lease.leased_at : null);
    const type = errorType ?? end.error?.type ?? null;
    this.attempts.push({
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
    this.events.push({
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

const WORKER_LOST: LeaseError = {
  type: MESH_ERROR_TYPES.WORKER_LOST,
  message: Buffer.from("The lease ran out before the worker reported."),
  retryable: true,
  details: null,
};
