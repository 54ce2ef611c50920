import type { LaneGroupRow } from "@runmesh/store/lane-groups";

/** A group to take, as it was seen. */
export type LaneGroupChoice = Pick<LaneGroupRow, "id" | "fence">;

/**
 * Which groups a relay should take, given all of them. Relays are known by the groups they hold, so a newcomer counts
 * itself. Groups that nobody holds are shared out up to the rounded-up share; below the rounded-down one a relay takes
 * from those that hold the most. Once every relay has its rounded share nothing is taken any more.
 */
export function chooseLaneGroups(groups: readonly LaneGroupRow[], owner: string): LaneGroupChoice[] {
  const held = new Map<string, LaneGroupRow[]>([[owner, []]]);
  const free: LaneGroupRow[] = [];
  for (const group of groups) {
    if (!group.live) free.push(group);
    else held.set(group.owner, [...(held.get(group.owner) ?? []), group]);
  }
  const mine = held.get(owner)!;
  const most = Math.ceil(groups.length / held.size);
  const least = Math.floor(groups.length / held.size);

  const chosen = free.slice(0, Math.max(0, most - mine.length));
  const others = [...held.values()].filter((theirs) => theirs !== mine);
  while (mine.length + chosen.length < least) {
    const richest = others.reduce((a, b) => (b.length > a.length ? b : a));
    chosen.push(richest.pop()!);
  }
  return chosen.map(({ id, fence }) => ({ id, fence }));
}
