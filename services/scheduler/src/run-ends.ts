import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listEndedRuns } from "@runmesh/store/runs";

interface Waiter {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly resolve: () => void;
}

/** Ends told by other processes do not come as hints: waiters look this often, all in one statement. */
const POLL_MS = 500;

/** Waits for ends of runs. A hint that a run has ended resolves its waiters; one statement looks for all of them else. */
export class RunEnds {
  readonly #db: Db;
  readonly #wakeups: Wakeups;
  readonly #waiters = new Set<Waiter>();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Db, wakeups: Wakeups) {
    this.#db = db;
    this.#wakeups = wakeups;
  }

  /**
   * Begins to listen before the caller looks at the run, so that an end meanwhile is not missed. `wait` resolves at the
   * end, the time-out or the abort.
   */
  listen(
    tenantId: number,
    runId: bigint,
  ): { wait(timeoutMs: number, signal: AbortSignal): Promise<void>; close(): void } {
    let finish = () => {};
    let isEnded = false;
    const resolve = () => {
      isEnded = true;
      finish();
    };
    const waiter = { tenantId, runId, resolve };
    const unsubscribe = this.#wakeups.subscribe(`ended:${runId}`, resolve);
    this.#waiters.add(waiter);
    this.#timer ??= setInterval(() => void this.#poll(), POLL_MS);
    return {
      wait: (timeoutMs, signal) =>
        new Promise((done) => {
          if (isEnded || signal.aborted) return done();
          const timer = setTimeout(() => finish(), timeoutMs);
          finish = () => {
            clearTimeout(timer);
            signal.removeEventListener("abort", finish);
            done();
          };
          signal.addEventListener("abort", finish, { once: true });
        }),
      close: () => {
        unsubscribe();
        this.#waiters.delete(waiter);
        if (this.#waiters.size > 0) return;
        clearInterval(this.#timer);
        this.#timer = undefined;
      },
    };
  }

  async #poll(): Promise<void> {
    for (const [tenantId, waiters] of Map.groupBy(this.#waiters, (waiter) => waiter.tenantId)) {
      try {
        const ended = await listEndedRuns(this.#db, { tenantId, runIds: [...new Set(waiters.map((w) => w.runId))] });
        const ids = new Set(ended.map((row) => row.id));
        for (const waiter of waiters) if (ids.has(waiter.runId)) waiter.resolve();
      } catch {
        // The database is out of reach: the next look, or the caller's time-out, comes.
      }
    }
  }
}
