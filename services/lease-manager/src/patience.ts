/** A few places for work that may wait long. Whoever gets none in time goes about it in another way. */
export class Patience {
  #free: number;
  readonly #asking = new Set<(isFree: boolean) => void>();

  constructor(places: number) {
    this.#free = places;
  }

  /** Whether there is a place within `timeoutMs`, first come first served: it is taken, and `leave` gives it back. */
  enter(timeoutMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const answer = (isFree: boolean) => {
        clearTimeout(timer);
        this.#asking.delete(answer);
        resolve(isFree);
      };
      const timer = setTimeout(answer, timeoutMs, false);
      this.#asking.add(answer);
    });
  }

  leave(): void {
    const [next] = this.#asking;
    if (next === undefined) this.#free++;
    else next(true);
  }
}
