import type { Signal } from "./loop.ts";

/**
 * Hints within one process that something may be ready. A hint may be lost or arrive twice, and carries no data:
 * whoever waits for one also looks by itself after a while. Topics are free strings, as in `ready:7`, `run:42`, `outbox`.
 */
export interface Wakeups {
  /** Tells everyone who listens to the topic; what a listener throws is dropped. */
  notify(topic: string): void;
  /** Returns what ends the subscription. */
  subscribe(topic: string, listener: () => void): () => void;
}

export interface WakeupsOptions {
  /** Subscriptions held at once; one more is not told anything and lives by its own timeout. Default 100,000. */
  readonly maxSubscriptions?: number;
}

export function createWakeups(options: WakeupsOptions = {}): Wakeups {
  const maxSubscriptions = options.maxSubscriptions ?? 100_000;
  const topics = new Map<string, Set<{ readonly listener: () => void }>>();
  let count = 0;

  return {
    notify(topic) {
      const subscriptions = topics.get(topic);
      if (subscriptions === undefined) return;
      for (const subscription of [...subscriptions]) {
        try {
          subscription.listener();
        } catch {
          // A hint is only a hint: one listener's fault must not reach the writer that notifies, nor the other listeners.
        }
      }
    },

    subscribe(topic, listener) {
      if (count >= maxSubscriptions) return () => {};
      const subscription = { listener };
      const subscriptions = topics.get(topic) ?? new Set();
      topics.set(topic, subscriptions.add(subscription));
      count++;

      return () => {
        if (!subscriptions.delete(subscription)) return;
        count--;
        if (subscriptions.size === 0 && topics.get(topic) === subscriptions) topics.delete(topic);
      };
    },
  };
}

/** What a loop takes as its `wake`: hints on any of the topics. */
export function wakeOn(wakeups: Wakeups, ...topics: readonly string[]): Signal {
  return {
    subscribe(listener) {
      const unsubscribes = topics.map((topic) => wakeups.subscribe(topic, listener));
      return () => {
        for (const unsubscribe of unsubscribes) unsubscribe();
      };
    },
  };
}

/**
 * Waits for the first hint on any of the topics: `woken`, or `timeout`, or `aborted` when the signal ends the wait.
 * Never throws. Subscribe before looking at the state, else a hint between the look and the wait is missed:
 * callers that cannot, bound the loss by the timeout.
 */
export function waitForWakeup(
  wakeups: Wakeups,
  topics: readonly string[],
  timeoutMs: number,
  signal: AbortSignal,
): Promise<"woken" | "timeout" | "aborted"> {
  if (signal.aborted) return Promise.resolve("aborted");
  return new Promise((resolve) => {
    const onAbort = () => end("aborted");
    const timer = setTimeout(() => end("timeout"), timeoutMs);
    signal.addEventListener("abort", onAbort, { once: true });
    const unsubscribes = topics.map((topic) => wakeups.subscribe(topic, () => end("woken")));

    function end(how: "woken" | "timeout" | "aborted"): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      for (const unsubscribe of unsubscribes) unsubscribe();
      resolve(how);
    }
  });
}
