import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listOpenRuns } from "@runmesh/store/runs";

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
  /** Waiters of this turn of the event loop, whose runs may have ended before. */
  readonly #fresh: Waiter[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Db, wakeups: Wakeups) {
    this.#db = db;
    this.#wakeups = wakeups;
  }

  /**
   * Begins to listen, and looks whether the run has ended already: what waits at once is looked up in one statement.
   * `wait` resolves at the end, the time-out or the abort, and at once where there is no such run.
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
    this.#fresh.push(waiter);
    if (this.#fresh.length === 1) setImmediate(() => void this.#look(this.#fresh.splice(0)));
    this.#timer ??= setInterval(() => void this.#look(this.#waiters), POLL_MS);
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

  /** Resolves those whose run has ended, or is not there: the caller looks itself and says so. */
  async #look(all: Iterable<Waiter>): Promise<void> {
    for (const [tenantId, waiters] of Map.groupBy(all, (waiter) => waiter.tenantId)) {
      try {
        const open = await listOpenRuns(this.#db, { tenantId, runIds: [...new Set(waiters.map((w) => w.runId))] });
        const ids = new Set(open.map((row) => row.id));
        for (const waiter of waiters) if (!ids.has(waiter.runId)) waiter.resolve();
      } catch {
        // The database is out of reach: the next look, or the caller's time-out, comes.
      }
    }
  }
}
