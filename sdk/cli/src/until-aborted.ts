/** Waits for the signal, with the process kept alive. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const alive = setInterval(() => {}, 2 ** 30);
    signal.addEventListener(
      "abort",
      () => {
        clearInterval(alive);
        resolve();
      },
      { once: true },
    );
  });
}
