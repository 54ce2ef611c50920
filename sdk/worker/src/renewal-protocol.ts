/** What the worker and its renewal thread tell each other. Leases are named by their fence, which never repeats. */

import type { LogLine_Level } from "@runmesh/contracts/task/v1/task_pb";

export interface ThreadOptions {
  readonly url: string;
  readonly apiKey: string;
  readonly name: string;
  readonly handlers: readonly string[];
  readonly queues: readonly string[];
  readonly capabilities: readonly string[];
  readonly slots: number;
  readonly leaseMs: number;
  readonly shared: SharedArrayBuffer;
}

export interface SessionIdentity {
  readonly sessionId: bigint;
  readonly sessionToken: string;
}

export interface Session extends SessionIdentity {
  readonly leaseMs: number;
  readonly renewMs: number;
}

export type ToThread =
  /** Leases of one answer, as (task, fence) pairs. `batch` rises by one each time. */
  | {
      readonly kind: "hold";
      readonly sessionId: bigint;
      readonly batch: number;
      readonly trustedUntil: number;
      readonly leases: BigInt64Array;
    }
  /** Their reports were answered: they are no longer named. */
  | { readonly kind: "drop"; readonly fences: BigInt64Array }
  /** To be said with the next renewal, which comes within `withinMs`. */
  | {
      readonly kind: "tell";
      readonly started: readonly bigint[];
      readonly progress: readonly (readonly [fence: bigint, json: Uint8Array<ArrayBuffer>])[];
      readonly log: readonly (readonly [fence: bigint, lines: readonly Line[]])[];
      readonly withinMs: number;
    }
  /** The session is closed by the server's word to another call. */
  | { readonly kind: "closed"; readonly sessionId: bigint }
  /** No call that acquires is out any more: what was leased by one whose answer was lost is given back. */
  | { readonly kind: "settle" }
  | { readonly kind: "close" };

export type FromThread =
  | ({ readonly kind: "attached" } & Session)
  /** Every lease of the session is lost; another `attached` follows. */
  | { readonly kind: "closed" }
  | { readonly kind: "lost"; readonly leases: readonly (readonly [fence: bigint, cause: number])[] }
  | { readonly kind: "renewed" }
  /** So many of the lines told were put into a renewal. */
  | { readonly kind: "logged"; readonly lines: readonly (readonly [fence: bigint, count: number])[] }
  /** That renewal failed: the lines are to be told again. */
  | { readonly kind: "unlogged"; readonly lines: readonly (readonly [fence: bigint, lines: readonly Line[]])[] }
  | { readonly kind: "settled" }
  /** The mesh will not have this worker: nothing more comes. */
  | { readonly kind: "refused"; readonly reason: string; readonly message: string; readonly advice: string }
  | { readonly kind: "trouble"; readonly message: string };

export interface Line {
  readonly atMs: number;
  readonly attempt: number;
  readonly level: LogLine_Level;
  readonly message: string;
}

/** Places in the shared memory, each a 64-bit integer. */
export const SHARED = {
  /** Until when, on the monotonic clock, the leases of the batches covered are trusted. */
  TRUSTED_UNTIL: 0,
  /** The last batch that a successful renewal named. */
  COVERED_BATCH: 1,
  /** How many messages about lost leases were sent: those not yet received are waiting in the port. */
  LOST_COUNT: 2,
  BYTES: 24,
} as const;

/** A lease is given up this much before it could end (G4). */
export function marginMs(leaseMs: number): number {
  return Math.min(1_000, leaseMs / 10);
}

export function writeLine({ atMs, attempt, level, message }: Line) {
  const seconds = Math.floor(atMs / 1_000);
  return { time: { seconds: BigInt(seconds), nanos: (atMs - seconds * 1_000) * 1_000_000 }, attempt, level, message };
}
