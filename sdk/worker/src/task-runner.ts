/**
 * 1. At most `slots` handlers run at a time; what is prefetched waits in the order it came.
 * 2. Only a task whose lease is trusted is started (G4); one that was lost never is.
 * 3. A task that must never run twice by itself begins when the mesh knows of it.
 * 4. An attempt is held, and named in renewals, until its report was answered or the server has told that it is lost.
 */
import type { Handler } from "@runmesh/client";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { LostLease_Cause } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { Attempt, byFence } from "./attempt.ts";
import { monotonicMs } from "./clock.ts";
import type { CreateHost } from "./durable-calls.ts";
import { type Outcome, outcomeOfResult, outcomeOfThrown } from "./outcome.ts";
import { runHandler } from "./run-handler.ts";

export interface RunnerOptions {
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly slots: number;
  trustedUntil(attempt: Attempt): number;
  /** Takes in what was told about lost leases. */
  receive(): void;
  /** The params of a task whose answer had no room for them. */
  fetchParams(attempt: Attempt): Promise<Uint8Array>;
  /** Resolves when the mesh knows that the handler is about to run. */
  tellStart(attempt: Attempt): Promise<void>;
  report(attempt: Attempt, outcome: Outcome): void;
  readonly createHost: CreateHost;
  /** A running attempt may need a sweep by then. */
  onDeadline(at: number): void;
}

export interface TaskRunner {
  readonly held: ReadonlySet<Attempt>;
  readonly running: number;
  readonly queued: number;
  /** When the first of the queue came; undefined while it is empty. */
  readonly queuedSince: number | undefined;
  /** Mean time of a handler, weighted to the last ones; 0 before the first. */
  readonly meanMs: number;
  accept(leases: readonly LeasedTask[], batch: number, trustedUntil: number): void;
  /** Starts what there is room for. */
  pump(): void;
  lose(leases: readonly (readonly [fence: bigint, cause: number])[]): void;
  loseAll(): void;
  /** The reports of these were answered. */
  forget(attempts: readonly Attempt[]): void;
  /** The handler waits for long, and its lease has ended: its slot is free, and its promise never settles. */
  suspended(attempt: Attempt): void;
  /** Gives back what has not been started. */
  releaseQueued(): void;
  abortRunning(): void;
  /** Gives back what still runs, after it was aborted and went on. */
  releaseRunning(): void;
  /** Resolves when no handler runs. */
  idle(): Promise<void>;
}

const decoder = new TextDecoder();

export function createTaskRunner(options: RunnerOptions): TaskRunner {
  // Attempts themselves, since looking up a fence, a bigint, costs more than the few times it is needed.
  const held = new Set<Attempt>();
  const waiters: (() => void)[] = [];
  let queue: Attempt[] = [];
  let running = 0;
  let meanMs = 0;

  function pump(): void {
    if (running >= options.slots || queue.length === 0) return;
    options.receive();
    const now = monotonicMs();
    let taken = 0;
    for (; taken < queue.length && running < options.slots; taken++) {
      const attempt = queue[taken]!;
      if (attempt.lost) continue;
      // A renewal that is under way will tell.
      if (options.trustedUntil(attempt) <= now) break;
      running++;
      attempt.begin(now);
      if (attempt.timesOutAt !== Number.POSITIVE_INFINITY) options.onDeadline(attempt.timesOutAt);
      void execute(attempt);
    }
    if (taken > 0) queue = queue.slice(taken);
  }

  async function execute(attempt: Attempt): Promise<void> {
    let outcome: Outcome;
    try {
      const { lease } = attempt;
      const handler = options.handlers.get(lease.handler);
      if (handler === undefined) throw new Error(`this worker has no handler ${lease.handler}`);
      const json = lease.paramsDeferred ? await options.fetchParams(attempt) : lease.paramsJson;
      const input = json.length === 0 ? null : JSON.parse(decoder.decode(json));
      if (lease.startFirst && !(await isStarted(attempt))) {
        outcome = { kind: attempt.lost && !lease.exclusive ? "dropped" : "released" };
      } else {
        outcome = outcomeOfResult(attempt, await runHandler(handler, input, attempt, () => attempt.close()));
      }
    } catch (thrown) {
      outcome = outcomeOfThrown(attempt, thrown);
    }
    // A suspended handler has ended already; what it still does counts for nothing.
    if (attempt.state !== "suspended") end(attempt, outcome);
  }

  async function isStarted(attempt: Attempt): Promise<boolean> {
    try {
      await options.tellStart(attempt);
    } catch {
      // Why is in the attempt, or else it is tried again by whoever gets it next.
      return false;
    }
    return attempt.aborted === undefined;
  }

  function end(attempt: Attempt, outcome: Outcome): void {
    running--;
    const took = monotonicMs() - attempt.startedAt;
    meanMs = meanMs === 0 ? took : meanMs + (took - meanMs) * 0.1;
    // `releaseRunning` may have reported it before.
    if (attempt.state === "running") report(attempt, outcome);
    pump();
    if (running === 0) for (const waiter of waiters.splice(0)) waiter();
  }

  function report(attempt: Attempt, outcome: Outcome): void {
    attempt.state = "reporting";
    if (outcome.kind === "dropped") held.delete(attempt);
    else options.report(attempt, outcome);
  }

  function lose(attempt: Attempt, cause: number): void {
    if (attempt.state === "reporting") return;
    attempt.lost = true;
    if (attempt.state === "queued") {
      held.delete(attempt);
      return;
    }
    attempt.abort(ABORT_CAUSES.get(cause) ?? "lease_lost");
  }

  return {
    held,
    get running() {
      return running;
    },
    get queued() {
      return queue.length;
    },
    get queuedSince() {
      return queue[0]?.receivedAt;
    },
    get meanMs() {
      return meanMs;
    },
    accept(leases, batch, trustedUntil) {
      const now = monotonicMs();
      for (const lease of leases) {
        const attempt = new Attempt(lease, batch, trustedUntil, now, options.createHost);
        held.add(attempt);
        queue.push(attempt);
      }
      pump();
    },
    pump,
    lose(leases) {
      const attempts = byFence(held);
      for (const [fence, cause] of leases) {
        const attempt = attempts.get(fence);
        if (attempt !== undefined) lose(attempt, cause);
      }
    },
    loseAll() {
      for (const attempt of held) {
        if (attempt.state === "reporting") held.delete(attempt);
        else lose(attempt, LostLease_Cause.EXPIRED);
      }
      queue = [];
    },
    suspended(attempt) {
      if (attempt.state !== "running") return;
      attempt.state = "suspended";
      held.delete(attempt);
      attempt.abort("suspended");
      end(attempt, { kind: "dropped" });
    },
    forget(attempts) {
      for (const attempt of attempts) held.delete(attempt);
    },
    releaseQueued() {
      const released = queue.filter((attempt) => !attempt.lost);
      queue = [];
      for (const attempt of released) report(attempt, { kind: "released" });
    },
    abortRunning() {
      for (const attempt of held) if (attempt.state === "running") attempt.abort("stopping");
    },
    releaseRunning() {
      for (const attempt of held) {
        // The word that an exclusive task's handler has ended would be a lie.
        if (attempt.state === "running" && !attempt.lease.exclusive) report(attempt, { kind: "released" });
      }
    },
    idle: () => (running === 0 ? Promise.resolve() : new Promise((resolve) => waiters.push(resolve))),
  };
}

const ABORT_CAUSES: ReadonlyMap<number, "timeout" | "cancelled" | "lease_lost"> = new Map([
  [LostLease_Cause.RUN_CANCELLED, "cancelled"],
  [LostLease_Cause.RUN_ENDED, "cancelled"],
  [LostLease_Cause.TIMED_OUT, "timeout"],
  [LostLease_Cause.EXPIRED, "lease_lost"],
]);
