/** Ended runs are kept so long where neither the mesh nor the tenant says otherwise. */
export const DEFAULT_KEEP_MS = 30 * 86_400_000;

/** What a partition of runs holds. */
export interface PartitionFacts {
  /** Runs there, and those of them that are to be kept today. */
  readonly total: number;
  readonly kept: number;
  /** Kept ones that will not be old within a day: active ones, and those that ended lately. */
  readonly lasting: number;
  /** No run will be created in it any more. */
  readonly isSettled: boolean;
}

/**
 * What to do with a partition:
 * - `drop` it whole, which costs the same however much it held;
 * - `wait`: within a day it can be dropped whole, and row by row would cost more;
 * - `sweep` what is old out of it row by row;
 * - `keep`: nothing in it is old.
 */
export type PartitionFate = "drop" | "wait" | "sweep" | "keep";

export function decidePartition({ total, kept, lasting, isSettled }: PartitionFacts): PartitionFate {
  if (isSettled && kept === 0) return "drop";
  if (total === kept) return "keep";
  return isSettled && lasting === 0 ? "wait" : "sweep";
}
