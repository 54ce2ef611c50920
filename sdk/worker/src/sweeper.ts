import { type Attempt, byFence } from "./attempt.ts";
import { monotonicMs } from "./clock.ts";
import type { Line, ToThread } from "./renewal-protocol.ts";

type Tell = Omit<Extract<ToThread, { kind: "tell" }>, "kind">;

export interface SweeperOptions {
  readonly held: ReadonlySet<Attempt>;
  trustedUntil(attempt: Attempt): number;
  tell(message: Tell): void;
  onSwept(): void;
}

export interface Sweeper {
  /** How long the longest of the running handlers had run at the last sweep. */
  readonly longestMs: number;
  /**
   * The event loop was blocked just now: what it reads may have waited for long, unknown to the renewal thread, and
   * been given back by the server meanwhile.
   */
  readonly hasStalled: boolean;
  start(): void;
  stop(): void;
  /** Some attempt may time out then. */
  wakeAt(at: number): void;
  /** So many lines of these were put into a renewal. */
  logged(lines: readonly (readonly [fence: bigint, count: number])[]): void;
  /** That renewal failed. */
  unlogged(lines: readonly (readonly [fence: bigint, lines: readonly Line[]])[]): void;
}

interface Told {
  readonly started: bigint[];
  readonly progress: [fence: bigint, json: Uint8Array<ArrayBuffer>][];
  readonly log: [fence: bigint, lines: Line[]][];
}

const SWEEP_MS = 250;
const STALL_MS = 1_000;
/** "Started" and log lines reach the server within a second; tasks that are shorter never need to be told. */
const TELL_WITHIN_MS = 1_000 - SWEEP_MS;

/**
 * Aborts what ran too long or whose lease is not trusted any more, and tells the renewal thread what it should say.
 * One pass over all attempts now and then costs less than timers for each.
 */
export function createSweeper(options: SweeperOptions): Sweeper {
  let timer: NodeJS.Timeout | undefined;
  let dueAt = Number.POSITIVE_INFINITY;
  let longestMs = 0;
  let running = false;
  let sweptAt = monotonicMs();
  let stalledAt = Number.NEGATIVE_INFINITY;

  function wakeAt(at: number): void {
    if (!running || at >= dueAt) return;
    dueAt = at;
    clearTimeout(timer);
    timer = setTimeout(sweep, Math.max(1, Math.ceil(at - monotonicMs())));
  }

  function sweep(): void {
    const now = monotonicMs();
    const told: Told = { started: [], progress: [], log: [] };
    if (now - sweptAt > STALL_MS) stalledAt = now;
    sweptAt = now;
    let withinMs = TELL_WITHIN_MS;
    let nextAt = now + SWEEP_MS;
    longestMs = 0;
    for (const attempt of options.held) {
      if (attempt.state !== "running") continue;
      longestMs = Math.max(longestMs, now - attempt.startedAt);
      if (attempt.lost) continue;
      if (options.trustedUntil(attempt) <= now) attempt.abort("lease_lost");
      else if (attempt.timesOutAt <= now) attempt.abort("timeout");
      else nextAt = Math.min(nextAt, attempt.timesOutAt);
      // A heartbeat that came only with the next renewal might come too late.
      if (gather(attempt, now, told) && attempt.lease.heartbeat !== undefined) withinMs = 0;
    }
    if (told.started.length + told.progress.length + told.log.length > 0) options.tell({ ...told, withinMs });
    dueAt = Number.POSITIVE_INFINITY;
    options.onSwept();
    wakeAt(nextAt);
  }

  return {
    get longestMs() {
      return longestMs;
    },
    get hasStalled() {
      const now = monotonicMs();
      return now - sweptAt > STALL_MS || now - stalledAt < STALL_MS;
    },
    start() {
      running = true;
      sweptAt = monotonicMs();
      wakeAt(monotonicMs() + SWEEP_MS);
    },
    stop() {
      running = false;
      clearTimeout(timer);
    },
    wakeAt,
    logged(lines) {
      const attempts = byFence(options.held);
      for (const [fence, count] of lines) {
        const attempt = attempts.get(fence);
        if (attempt?.state !== "running") continue;
        attempt.lines.splice(0, count);
        attempt.linesTold -= count;
      }
    },
    unlogged(lines) {
      const attempts = byFence(options.held);
      for (const [fence, again] of lines) {
        const attempt = attempts.get(fence);
        if (attempt?.state !== "running") continue;
        // The thread keeps them too, in this order, before those that it was told since.
        attempt.lines.unshift(...again);
        attempt.linesTold += again.length;
      }
    },
  };
}

/** Adds what the server should know of an attempt. True when that is progress. */
function gather(attempt: Attempt, now: number, told: Told): boolean {
  const { fence } = attempt.lease;
  if (!attempt.startTold && now - attempt.startedAt >= SWEEP_MS / 2) {
    attempt.startTold = true;
    told.started.push(fence);
  }
  if (attempt.lines.length > attempt.linesTold) {
    told.log.push([fence, attempt.lines.slice(attempt.linesTold)]);
    attempt.linesTold = attempt.lines.length;
  }
  if (attempt.progressTold || attempt.progressJson === undefined) return false;
  attempt.progressTold = true;
  told.progress.push([fence, attempt.progressJson]);
  return true;
}
