import type { Db } from "@runmesh/store/db";
import { lockHeldLaneGroup, lockLaneGroup } from "@runmesh/store/lane-groups";
import type { HeldLaneGroups, OutboxRows } from "@runmesh/store/outbox";
import { findParkedRuns, parkOutboxRows, unparkOutboxRows } from "@runmesh/store/outbox-parked";

const MAX_ERROR_LENGTH = 2_000;
const LANE_GROUP_MASK = 15n;

/** Runs of a batch that have parked rows: what comes later waits behind them. */
export async function readParkedRuns(db: Db, rows: OutboxRows): Promise<ReadonlySet<number>> {
  if (!rows.anyParked) return new Set();
  const tenantOf = new Map<number, number>();
  for (const [index, runId] of rows.runIds.entries()) tenantOf.set(runId, rows.tenantIds[index]!);
  const found = await findParkedRuns(db, {
    tenantIds: [...tenantOf.values()],
    runIds: [...tenantOf.keys()].map(BigInt),
  });
  return new Set(found.map((row) => Number(row.run_id)));
}

/**
 * Sets rows of one run aside: those from an event that cannot be sent on, or, without an error, those that belong
 * behind it. Answers how many; none when the run's lane group is lost, or the run was released meanwhile.
 */
export function parkRun(
  db: Db,
  p: { held: HeldLaneGroups; rows: OutboxRows; indexes: readonly number[]; error: unknown },
): Promise<number> {
  const { held, rows, indexes, error } = p;
  const first = indexes[0]!;
  const laneGroup = rows.laneGroups[first]!;
  const fence = held.fences[held.ids.indexOf(laneGroup)];
  if (fence === undefined) return Promise.resolve(0);
  return db.transaction(async (tx) => {
    if ((await lockHeldLaneGroup(tx, { id: laneGroup, owner: held.owner, fence })) === undefined) return 0;
    const parked = await parkOutboxRows(tx, {
      tenantId: rows.tenantIds[first]!,
      runId: BigInt(rows.runIds[first]!),
      places: indexes.map((index) => rows.places[index]!),
      ids: indexes.map((index) => rows.ids[index]!),
      error: error === undefined ? "an earlier event of the run could not be sent" : describe(error),
      behind: error === undefined,
    });
    return parked.length;
  });
}

/** Puts a run's parked rows back ahead of its later ones, to be sent again. Answers how many there were. */
export function releaseParked(db: Db, p: { tenantId: number; runId: bigint }): Promise<number> {
  return db.transaction(async (tx) => {
    await lockLaneGroup(tx, { id: Number(p.runId & LANE_GROUP_MASK) });
    return (await unparkOutboxRows(tx, p)).length;
  });
}

function describe(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return text.replaceAll("\0", "\\0").slice(0, MAX_ERROR_LENGTH).toWellFormed();
}
