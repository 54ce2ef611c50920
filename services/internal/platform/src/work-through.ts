/** Works through items, so many at once, so that one that waits for a lock holds up no other. None begins after an abort. */
export async function workThrough<T>(
  items: Iterable<T>,
  atOnce: number,
  work: (item: T) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const queue = items[Symbol.iterator]();
  async function worker(): Promise<void> {
    while (!signal?.aborted) {
      const next = queue.next();
      if (next.done) return;
      await work(next.value);
    }
  }
  // All of them have ended before a failure of one is told: nothing goes on behind the loop's back.
  const outcomes = await Promise.allSettled(Array.from({ length: atOnce }, worker));
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
}
