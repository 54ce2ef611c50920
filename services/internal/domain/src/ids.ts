/** A task's id is its run's shifted by 20 bits plus its ordinal, so a run has at most 1,048,576 tasks. */
const ORDINAL_BITS = 20n;
const ORDINAL_MASK = (1n << ORDINAL_BITS) - 1n;

export const MAX_ORDINAL = Number(ORDINAL_MASK);

/** Relays lease the lanes of events in so many groups, fixed for ever. */
export const LANE_GROUP_COUNT = 16;

export function taskId(runId: bigint, ordinal: number): bigint {
  if (!(Number.isInteger(ordinal) && ordinal >= 0 && ordinal <= MAX_ORDINAL)) {
    throw new Error(`not an ordinal of a task: ${ordinal}`);
  }
  return (runId << ORDINAL_BITS) | BigInt(ordinal);
}

export const runIdOf = (id: bigint): bigint => id >> ORDINAL_BITS;

export const ordinalOf = (id: bigint): number => Number(id & ORDINAL_MASK);

/** Events travel in 256 virtual lanes, fixed for ever. */
export const laneOf = (runId: bigint): number => Number(runId & 255n);

export const laneGroupOf = (runId: bigint): number => Number(runId & 15n);
