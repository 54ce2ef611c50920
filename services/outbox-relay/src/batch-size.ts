/** Events, or packs that nobody reads, of one pass. */
const LIMIT = 1_000;

/**
 * How many packs of each lane group to read. An equal share of the limit while all groups are busy; up to the whole
 * limit where one group holds the backlog, as with a run that fans out.
 */
export class BatchSize {
  readonly limit = LIMIT;
  #perGroup = LIMIT;
  #turn = 0;

  perGroup(groupCount: number): number {
    return Math.max(this.#perGroup, Math.ceil(LIMIT / groupCount));
  }

  /** The groups in another order each time, so that none is always the last, where the limit cuts. */
  rotate(groups: readonly number[]): number[] {
    const first = this.#turn++ % groups.length;
    return [...groups.slice(first), ...groups.slice(0, first)];
  }

  /** Learns from a pass, and says whether it was full: rows may have been left. */
  isFull(groupCount: number, count: number, largest: number): boolean {
    const perGroup = this.perGroup(groupCount);
    const full = count >= LIMIT || largest >= perGroup;
    if (count >= LIMIT) this.#perGroup = Math.floor(perGroup / 2);
    else if (full) this.#perGroup = Math.min(LIMIT, perGroup * 4);
    return full;
  }
}
