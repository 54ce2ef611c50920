import type { Wakeups } from "@runmesh/platform/wakeup";

/** A topic listened to without a gap: what is told between two waits ends the next at once. */
export class Hint {
  readonly #unsubscribe: () => void;
  #isTold = false;
  #wake: (() => void) | undefined;

  constructor(wakeups: Wakeups, topic: string) {
    this.#unsubscribe = wakeups.subscribe(topic, () => {
      this.#isTold = true;
      this.#wake?.();
    });
  }

  /** True when the topic was told since the last wait; false at the time-out or the abort. */
  async wait(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isTold && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const finish = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", finish);
          this.#wake = undefined;
          resolve();
        };
        const timer = setTimeout(finish, timeoutMs);
        signal.addEventListener("abort", finish, { once: true });
        this.#wake = finish;
      });
    }
    const isTold = this.#isTold;
    this.#isTold = false;
    return isTold;
  }

  close(): void {
    this.#unsubscribe();
  }
}
