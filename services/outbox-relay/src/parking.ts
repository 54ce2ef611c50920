import { laneGroupOf } from "@runmesh/domain/ids";
import type { Db } from "@runmesh/store/db";
import { type HeldLaneGroups, lockHeldLaneGroup, lockLaneGroup } from "@runmesh/store/lane-groups";
import { type OutboxRows, outboxRow } from "@runmesh/store/outbox";
import { parkEvents, unparkEvents } from "@runmesh/store/outbox-parked";

const MAX_ERROR_LENGTH = 2_000;

/**
 * Sets events of one run aside: those from one that cannot be sent on, or, without an error, those that belong behind
 * it. Answers the indexes of those that are parked now, and may leave the outbox: none when the run's lane group is
 * lost, or the run was released meanwhile.
 */
export function parkRun(
  db: Db,
  p: { held: HeldLaneGroups; rows: OutboxRows; indexes: readonly number[]; error: unknown },
): Promise<readonly number[]> {
  const { held, rows, indexes, error } = p;
  const pack = rows.packs[indexes[0]!]!;
  const laneGroup = rows.laneGroups[pack]!;
  const fence = held.fences[held.ids.indexOf(laneGroup)];
  if (fence === undefined) return Promise.resolve([]);
  return db.transaction(async (tx) => {
    if ((await lockHeldLaneGroup(tx, { id: laneGroup, owner: held.owner, fence })) === undefined) return [];
    // What was released before it was removed stands twice.
    const events = [...new Map(indexes.map((index) => [rows.sequences[index]!, outboxRow(rows, index)])).values()];
    const parked = await parkEvents(tx, {
      tenantId: rows.tenantIds[pack]!,
      runId: events[0]!.runId,
      events,
      error: error === undefined ? "an earlier event of the run could not be sent" : describe(error),
      behind: error === undefined,
    });
    const sequences = new Set(parked.map((row) => row.sequence));
    return indexes.filter((index) => sequences.has(rows.sequences[index]!));
  });
}

/** Puts a run's parked rows back ahead of its later ones, to be sent again. Answers how many there were. */
export function releaseParked(db: Db, p: { tenantId: number; runId: bigint }): Promise<number> {
  return db.transaction(async (tx) => {
    await lockLaneGroup(tx, { id: laneGroupOf(p.runId) });
    return (await unparkEvents(tx, p)).length;
  });
}

function describe(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return text.replaceAll("\0", "\\0").slice(0, MAX_ERROR_LENGTH).toWellFormed();
}
