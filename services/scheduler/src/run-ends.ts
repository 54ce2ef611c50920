import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listOpenRuns } from "@runmesh/store/runs";
import type { StartedRuns } from "./started-runs.ts";

interface Waiter {
  readonly tenantId: number;
  readonly runIds: readonly bigint[];
  tell(runId: bigint): void;
}

export interface EndsHeard {
  /** Runs that have ended, or are not there; none at the time-out or the abort. */
  wait(timeoutMs: number, signal: AbortSignal): Promise<bigint[]>;
  close(): void;
}

/** Ends told by other processes do not come as hints: waiters look this often, all in one statement. */
const POLL_MS = 500;

/** Waits for ends of runs. A hint that a run has ended tells its waiters; one statement looks for all of them else. */
export class RunEnds {
  readonly #db: Db;
  readonly #wakeups: Wakeups;
  readonly #started: StartedRuns;
  readonly #waiters = new Set<Waiter>();
  /** Waiters of this turn of the event loop, whose runs may have ended before. */
  readonly #fresh: Waiter[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Db, wakeups: Wakeups, started: StartedRuns) {
    this.#db = db;
    this.#wakeups = wakeups;
    this.#started = started;
  }

  /** Those that have ended by now, or are not there. */
  async list(tenantId: number, runIds: readonly bigint[]): Promise<bigint[]> {
    const open = new Set((await listOpenRuns(this.#db, { tenantId, runIds })).map((row) => row.id));
    return runIds.filter((runId) => !open.has(runId));
  }

  /** Begins to listen, and looks which have ended already: what is asked at once is looked up in one statement. */
  listen(tenantId: number, runIds: readonly bigint[]): EndsHeard {
    const ended = new Set<bigint>();
    let wake = () => {};
    const tell = (runId: bigint) => {
      // Ends that are told in this turn of the event loop are answered together.
      if (ended.size === 0) setImmediate(() => wake());
      ended.add(runId);
    };
    const waiter = { tenantId, runIds, tell };
    const unsubscribes = runIds.map((runId) => this.#wakeups.subscribe(`ended:${runId}`, () => tell(runId)));
    const started = runIds.map((runId) => this.#started.find(tenantId, runId));
    const areKnown = started.every((run) => run !== undefined);
    if (areKnown) for (const [i, run] of started.entries()) if (run?.hasEnded) tell(runIds[i]!);
    this.#add(waiter, !areKnown);
    return {
      wait: (timeoutMs, signal) =>
        new Promise((resolve) => {
          const finish = () => {
            clearTimeout(timer);
            signal.removeEventListener("abort", finish);
            resolve([...ended]);
          };
          const timer = setTimeout(finish, timeoutMs);
          signal.addEventListener("abort", finish, { once: true });
          wake = finish;
          if (signal.aborted) finish();
        }),
      close: () => {
        for (const unsubscribe of unsubscribes) unsubscribe();
        this.#remove(waiter);
      },
    };
  }

  #add(waiter: Waiter, mustLook: boolean): void {
    this.#waiters.add(waiter);
    if (mustLook) {
      this.#fresh.push(waiter);
      if (this.#fresh.length === 1) setImmediate(() => void this.#look(this.#fresh.splice(0)));
    }
    this.#timer ??= setInterval(() => void this.#look(this.#waiters), POLL_MS);
  }

  #remove(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    if (this.#waiters.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #look(all: Iterable<Waiter>): Promise<void> {
    for (const [tenantId, waiters] of Map.groupBy(all, (waiter) => waiter.tenantId)) {
      try {
        const runIds = [...new Set(waiters.flatMap((waiter) => waiter.runIds))];
        const ended = new Set(await this.list(tenantId, runIds));
        for (const waiter of waiters) for (const runId of waiter.runIds) if (ended.has(runId)) waiter.tell(runId);
      } catch {
        // The database is out of reach: the next look, or the caller's time-out, comes.
      }
    }
  }
}
