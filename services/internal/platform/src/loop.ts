import { performance } from "node:perf_hooks";
import type { Log } from "./log.ts";
import type { Service } from "./service.ts";

/** What a loop listens to between its passes: `subscribe` is told a listener and returns what ends it. */
export interface Signal {
  subscribe(listener: () => void): () => void;
}

export interface LoopOptions {
  readonly name: string;
  /** One pass. `again` goes on at once, because there was more to do than one pass takes. */
  readonly runOnce: (signal: AbortSignal) => Promise<{ again: boolean } | undefined> | Promise<void>;
  /** The longest rest between two passes that nothing wakes. */
  readonly intervalMs: number;
  readonly wake?: Signal;
  readonly log: Log;
  /** How long to gather wakes before a pass. Default 0. */
  readonly debounceMs?: number;
  /** How long stop waits for the pass that is running. Default 10 s. */
  readonly stopTimeoutMs?: number;
}

export type Loop = Service & { wake(): void };

const FIRST_BACKOFF_MS = 100;
const LAST_BACKOFF_MS = 5_000;
const LOG_EVERY_MS = 1_000;
/** While passes go on failing alike: a database that is away fails those of every loop. */
const LOG_AGAIN_MS = 30_000;

/**
 * Repeats one pass: at once while there is more to do, else after a wake or the interval, and after a failure
 * with exponential rests (full jitter above half, 100 ms to 5 s) that wakes do not shorten.
 */
export function createLoop(options: LoopOptions): Loop {
  const { name, runOnce, intervalMs, log, debounceMs = 0, stopTimeoutMs = 10_000 } = options;
  let running: AbortController | undefined;
  let ended: Promise<void> = Promise.resolve();
  let awake = false;
  let wakeRest: (() => void) | undefined;
  let lastLoggedAt = Number.NEGATIVE_INFINITY;
  let lastSaid = "";
  let unloggedCount = 0;

  function wake(): void {
    awake = true;
    wakeRest?.();
  }

  /** Rests until the time is over or the signal aborts; `wakeable` ends the rest at a wake as well. */
  function rest(ms: number, signal: AbortSignal, wakeable: boolean): Promise<void> {
    if (signal.aborted || (wakeable && awake) || ms <= 0) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        wakeRest = undefined;
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener("abort", end, { once: true });
      if (wakeable) wakeRest = end;
    });
  }

  async function run(signal: AbortSignal): Promise<void> {
    const unsubscribe = options.wake?.subscribe(wake);
    let failureCount = 0;
    try {
      while (!signal.aborted) {
        awake = false;
        try {
          const result = await runOnce(signal);
          if (failureCount > 0) log.info({ loop: name, failureCount }, "passes succeed again");
          failureCount = 0;
          // A pass that never really waits must still let timers and sockets have their turn.
          if (result?.again) await new Promise<void>((resolve) => setImmediate(resolve));
          else {
            await rest(intervalMs, signal, true);
            await rest(debounceMs, signal, false);
          }
        } catch (error) {
          if (signal.aborted) break;
          failureCount++;
          report(error, failureCount);
          await rest(backoff(failureCount), signal, false);
        }
      }
    } finally {
      unsubscribe?.();
    }
  }

  function report(error: unknown, failureCount: number): void {
    const now = performance.now();
    const said = String(error);
    const isNews = failureCount === 1 || said !== lastSaid;
    if (now - lastLoggedAt < (isNews ? LOG_EVERY_MS : LOG_AGAIN_MS)) {
      unloggedCount++;
      return;
    }
    log.error({ loop: name, error, failureCount, unloggedCount }, "a pass failed; it will be repeated");
    lastLoggedAt = now;
    lastSaid = said;
    unloggedCount = 0;
  }

  return {
    name,
    wake,
    async start() {
      if (running !== undefined) return;
      const abort = new AbortController();
      running = abort;
      // A pass that an earlier stop left behind ends before the next one begins: passes never overlap.
      ended = ended.then(() => run(abort.signal));
    },
    async stop() {
      running?.abort(new Error(`${name} stops`));
      running = undefined;
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<"late">((resolve) => {
        timer = setTimeout(resolve, stopTimeoutMs, "late");
      });
      const how = await Promise.race([ended, late]);
      clearTimeout(timer);
      if (how === "late") log.warn({ loop: name, stopTimeoutMs }, "a pass did not end in time and was left behind");
    },
  };
}

function backoff(failureCount: number): number {
  const longest = Math.min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(failureCount, 10));
  return Math.max(FIRST_BACKOFF_MS, longest * (0.5 + Math.random() / 2));
}
