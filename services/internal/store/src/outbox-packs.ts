import { LANE_GROUP_COUNT, laneGroupOf } from "@runmesh/domain/ids";

/**
 * The outbox holds packs: the events that one statement commits for one lane group, in order, so many a row at most. A
 * run's are always in the same group, so packs taken by their ids tell a run's events in the order of its sequence.
 */
export const MAX_PACK = 64;

/** For each event of a statement, given by its run, the pack it goes into: of its own lane group, filled in order. */
export function packEvents(runIds: readonly bigint[]): Int32Array {
  const packs = new Int32Array(runIds.length);
  const sizes = new Int32Array(LANE_GROUP_COUNT);
  for (let i = 0; i < runIds.length; i++) {
    const group = laneGroupOf(runIds[i]!);
    packs[i] = Math.floor(sizes[group]!++ / MAX_PACK) * LANE_GROUP_COUNT + group;
  }
  return packs;
}
