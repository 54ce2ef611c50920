import { setTimeout as delay } from "node:timers/promises";

/** Waits for work, but not for ever: what hangs is named. */
export async function within<T>(timeoutMs: number, what: string, work: Promise<T>): Promise<T> {
  const done = new AbortController();
  const late = delay(timeoutMs, undefined, { signal: done.signal }).then(() => {
    throw new Error(`${what}: not done within ${Math.round(timeoutMs / 1000)} s`);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    done.abort();
  }
}
