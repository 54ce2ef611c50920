import type { Wakeups } from "@runmesh/platform/wakeup";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";

interface StartedRun {
  readonly loaded: LoadedDefinition;
  readonly until: number;
  readonly forget: () => void;
  hasEnded: boolean;
}

/** Who starts a run asks for its end right after, if at all. */
const MEMORY_MS = 2_000;
const MAX_RUNS = 10_000;

/**
 * Runs that this process started a moment ago: what they run, and whether a hint has told of their end. So the first
 * look of who waits for one can be spared; a hint that was missed is made up for by the looks that follow.
 */
export class StartedRuns {
  readonly #wakeups: Wakeups;
  readonly #runs = new Map<string, StartedRun>();
  #sweep: NodeJS.Timeout | undefined;

  constructor(wakeups: Wakeups) {
    this.#wakeups = wakeups;
  }

  note(tenantId: number, runId: bigint, loaded: LoadedDefinition): void {
    const key = `${tenantId}/${runId}`;
    const forget = this.#wakeups.subscribe(`ended:${runId}`, () => {
      run.hasEnded = true;
      forget();
    });
    const run: StartedRun = { loaded, until: performance.now() + MEMORY_MS, forget, hasEnded: false };
    this.#runs.get(key)?.forget();
    this.#runs.set(key, run);
    if (this.#runs.size > MAX_RUNS) this.#forgetFirst();
    this.#sweep ??= setTimeout(() => this.#forgetOld(), MEMORY_MS).unref();
  }

  find(tenantId: number, runId: bigint): Pick<StartedRun, "loaded" | "hasEnded"> | undefined {
    return this.#runs.get(`${tenantId}/${runId}`);
  }

  #forgetOld(): void {
    this.#sweep = undefined;
    const now = performance.now();
    for (const run of this.#runs.values()) {
      if (run.until > now) break;
      this.#forgetFirst();
    }
    if (this.#runs.size > 0) this.#sweep = setTimeout(() => this.#forgetOld(), MEMORY_MS).unref();
  }

  #forgetFirst(): void {
    const [first] = this.#runs;
    if (first === undefined) return;
    first[1].forget();
    this.#runs.delete(first[0]);
  }
}
