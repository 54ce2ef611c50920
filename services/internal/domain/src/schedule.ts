/** What a tick does while a run of an earlier one is active. Values are those of `schedule.overlap`. */
export const OVERLAPS = { SKIP: 1, BUFFER_ONE: 2, BUFFER_ALL: 3, CANCEL_PREVIOUS: 4, ALLOW: 5 } as const;

export type Overlap = keyof typeof OVERLAPS;

export const MAX_BUFFERED_TICKS = 100;
/** Ticks that one look at a schedule deals with; more wait for the next. */
export const MAX_TICKS_A_LOOK = 100;
/** Missed ticks that are counted one by one; beyond, the schedule goes straight to its catch-up window. */
export const MAX_MISSED_COUNTED = 1_000;

/** The first tick after an instant; undefined where none is left. */
export type NextTick = (afterMs: number) => number | undefined;

export interface DueTicks {
  readonly ticks: readonly number[];
  /** Older than the catch-up window. */
  readonly missedCount: number;
  /** The last tick that was seen, missed ones included. */
  readonly lastAt: number | undefined;
  readonly nextAt: number | undefined;
}

/** The ticks from `nextAt` until now, oldest first, at most `most` of them. Those older than the catch-up window are only counted. */
export function listDueTicks(p: {
  readonly nextAt: number | undefined;
  readonly nowMs: number;
  readonly catchUpMs: number;
  readonly most?: number;
  readonly next: NextTick;
}): DueTicks {
  const { most = MAX_TICKS_A_LOOK } = p;
  const oldest = p.nowMs - p.catchUpMs;
  let at = p.nextAt;
  let lastAt: number | undefined;
  let missedCount = 0;
  while (at !== undefined && at < oldest && missedCount < MAX_MISSED_COUNTED) {
    missedCount++;
    lastAt = at;
    at = p.next(at);
  }
  if (at !== undefined && at < oldest) at = p.next(oldest - 1);
  const ticks: number[] = [];
  while (at !== undefined && at <= p.nowMs && ticks.length < most) {
    ticks.push(at);
    lastAt = at;
    at = p.next(at);
  }
  return { ticks, missedCount, lastAt, nextAt: at };
}

export interface TickPlan {
  /** Buffered ticks to start, from the oldest. */
  readonly startBuffered: number;
  readonly start: readonly number[];
  readonly buffer: readonly number[];
  readonly skip: readonly number[];
  /** The active runs are cancelled before anything starts. */
  readonly cancelActive: boolean;
}

/** What becomes of due ticks. Every one of them is in exactly one of `start`, `buffer` and `skip`. */
export function planTicks(p: {
  readonly overlap: Overlap;
  readonly ticks: readonly number[];
  /** Whether a run of the schedule is active. */
  readonly isActive: boolean;
  readonly bufferedCount: number;
}): TickPlan {
  const { overlap, ticks } = p;
  const none = { startBuffered: 0, start: [], buffer: [], skip: [], cancelActive: false };
  if (overlap === "ALLOW") return { ...none, startBuffered: p.bufferedCount, start: ticks };
  // Of ticks that are due together the newest wins: starting the others would only cancel them.
  if (overlap === "CANCEL_PREVIOUS" && ticks.length > 0) {
    return { ...none, start: ticks.slice(-1), skip: ticks.slice(0, -1), cancelActive: p.isActive };
  }
  // The buffered come first: they are older.
  const startBuffered = !p.isActive && p.bufferedCount > 0 ? 1 : 0;
  const start = p.isActive || startBuffered > 0 ? [] : ticks.slice(0, 1);
  const rest = ticks.slice(start.length);
  const room = Math.max(0, bufferOf(overlap) - (p.bufferedCount - startBuffered));
  return { ...none, startBuffered, start, buffer: rest.slice(0, room), skip: rest.slice(room) };
}

function bufferOf(overlap: Overlap): number {
  if (overlap === "BUFFER_ALL") return MAX_BUFFERED_TICKS;
  return overlap === "BUFFER_ONE" ? 1 : 0;
}
