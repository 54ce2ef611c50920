import type { Db } from "@runmesh/store/db";
import type { HeldLaneGroups } from "@runmesh/store/lane-groups";
import type { OutboxRows } from "@runmesh/store/outbox";
import { removeOutbox, trimOutbox } from "@runmesh/store/outbox-remove";

export interface Removed {
  /** Events that left the outbox. */
  readonly count: number;
  /** Events that stay although they were settled, because their lane group was lost. */
  readonly lostCount: number;
}

/**
 * Lets settled events, given by their indexes, leave the outbox: a pack all of whose events are settled goes, and of
 * one that holds others only those stay, so that what was sent is not sent again for their sake.
 */
export async function removeSettled(
  db: Db,
  p: { held: HeldLaneGroups; rows: OutboxRows; settled: readonly number[] },
): Promise<Removed> {
  const { held, rows, settled } = p;
  if (settled.length === 0) return { count: 0, lostCount: 0 };
  const isSettled = new Set(settled);
  const trimmed = new Map<number, Set<number>>();
  for (let index = 0; index < rows.count; index++) {
    if (isSettled.has(index)) continue;
    const pack = rows.packs[index]!;
    const elements = trimmed.get(pack) ?? new Set<number>();
    trimmed.set(pack, elements.add(rows.elements[index]!));
  }
  // An event whose run's end stays, stays with it.
  const leaving = new Int32Array(rows.places.length);
  const sizes = new Int32Array(rows.places.length);
  for (let index = 0; index < rows.count; index++) {
    const pack = rows.packs[index]!;
    sizes[pack]!++;
    if (!trimmed.get(pack)?.has(rows.elements[index]!)) leaving[pack]!++;
  }

  const gone = rows.places.map((_, pack) => pack).filter((pack) => !trimmed.has(pack));
  let count = gone.length === 0 ? 0 : await removePacks(db, held, rows, gone);
  for (const [pack, elements] of trimmed) {
    if (leaving[pack] === 0) continue;
    const rest = { place: rows.places[pack]!, id: rows.ids[pack]!, size: sizes[pack]!, elements: [...elements] };
    if (await trimOutbox(db, { held, ...rest })) count += leaving[pack]!;
  }
  return { count, lostCount: leaving.reduce((sum, size) => sum + size, 0) - count };
}

function removePacks(db: Db, held: HeldLaneGroups, rows: OutboxRows, packs: readonly number[]): Promise<number> {
  return removeOutbox(db, {
    held,
    places: packs.map((pack) => rows.places[pack]!),
    ids: Float64Array.from(packs, (pack) => rows.ids[pack]!).sort(),
  });
}
