/**
 * Tells a network that failed from workers that did. Invariants:
 *   1. A second begins with a link that breaks. It is a storm when more than half of the sessions that were open then,
 *      and more than three, broke before it was over.
 *   2. Sessions count, not links: one that came back and broke again is one.
 *   3. A session that was opened within the second does not count: workers that die one after the other, as one that
 *      is started again and again, are no storm.
 */
export interface Storm {
  readonly together: number;
  readonly before: number;
}

export interface BrokenLink {
  readonly sessionId: bigint;
  /** On one monotonic clock, in ms, as `at`. */
  readonly openedAt: number;
  readonly at: number;
  /** Sessions open just before, this one among them. */
  readonly before: number;
}

const STORM_MS = 1_000;
const STORM_MIN = 3;
/** Longer than any grace asks about. */
const KEEP_MS = 60_000;

export class LinkStorms {
  /** Oldest first. */
  #broken: BrokenLink[] = [];
  /** What the second that a break began came to; each is asked about by every break within it. */
  readonly #verdicts = new WeakMap<BrokenLink, Storm | "calm">();

  /** Breaks are told in the order of their time. */
  add(link: BrokenLink): void {
    const kept = this.#broken.findIndex(({ at }) => at > link.at - KEEP_MS);
    if (kept !== 0) this.#broken = kept === -1 ? [] : this.#broken.slice(kept);
    this.#broken.push(link);
  }

  /** The storm that a break was part of: the same object for all of its breaks. Asked for when its second is over. */
  find(link: BrokenLink): Storm | undefined {
    for (let first = this.#firstAfter(link.at - STORM_MS); first < this.#broken.length; first++) {
      const began = this.#broken[first]!;
      if (began.at > link.at) return undefined;
      const verdict = this.#verdicts.get(began) ?? this.#judge(first, began);
      this.#verdicts.set(began, verdict);
      if (verdict !== "calm") return verdict;
    }
    return undefined;
  }

  #judge(first: number, { at, before }: BrokenLink): Storm | "calm" {
    const end = this.#firstAfter(at + STORM_MS);
    // Most of the time the links are too few already, and need not be told apart.
    if (!isStorm(end - first, before)) return "calm";
    const within = this.#broken.slice(first, end).filter(({ openedAt }) => openedAt <= at);
    const together = new Set(within.map(({ sessionId }) => sessionId)).size;
    return isStorm(together, before) ? { together, before } : "calm";
  }

  /** The place of the first break after a time. */
  #firstAfter(time: number): number {
    let [low, high] = [0, this.#broken.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#broken[middle]!.at <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const isStorm = (together: number, before: number): boolean => together > STORM_MIN && together > before / 2;
