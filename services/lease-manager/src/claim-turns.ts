/** A claim that takes longer, as on a connection that has gone silent, keeps nobody waiting any more. */
const MAX_TURN_MS = 1_000;

/**
 * Lets claims of the same routes go one after the other. Two at once would look at the same best tasks, and the second
 * come away with nothing, as it passes over what the first has locked: a statement for no task.
 */
export class ClaimTurns {
  /** Of routes that somebody claims from: settles when the last that wants to is through. */
  readonly #ends = new Map<string, Promise<void>>();

  /** Runs `work` when its turn comes; answers `undefined` where the time was up before, or the signal aborted. */
  async take<T>(
    routeIds: readonly number[],
    { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    const key = routeIds.join();
    const before = this.#ends.get(key);
    const { promise: end, resolve: pass } = Promise.withResolvers<void>();
    this.#ends.set(key, end);
    void end.then(() => this.#ends.get(key) === end && this.#ends.delete(key));
    if (before !== undefined && !(await comesInTime(before, timeoutMs, signal))) {
      // Those behind it wait for those before it all the same.
      void before.then(pass);
      return undefined;
    }
    const late = setTimeout(pass, MAX_TURN_MS);
    try {
      return await work();
    } finally {
      clearTimeout(late);
      pass();
    }
  }
}

function comesInTime(turn: Promise<void>, timeoutMs: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const finish = (came: boolean) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", giveUp);
      resolve(came);
    };
    const giveUp = () => finish(false);
    const timer = setTimeout(giveUp, timeoutMs);
    signal.addEventListener("abort", giveUp, { once: true });
    void turn.then(() => finish(true));
  });
}
