const MAX_RESTING = 10_000;

/**
 * What could not be dealt with rests before a loop looks at it again, so that it holds up no other. Kept in memory and
 * bounded: beyond that, and after a restart, it is only looked at more often.
 */
export class Resting<K> {
  readonly #until = new Map<K, number>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  add(key: K, ms: number): void {
    if (this.#until.size < MAX_RESTING) this.#until.set(key, this.#now() + ms);
  }

  /** Those that rest still. */
  list(): K[] {
    const now = this.#now();
    for (const [key, until] of this.#until) if (until <= now) this.#until.delete(key);
    return [...this.#until.keys()];
  }
}
