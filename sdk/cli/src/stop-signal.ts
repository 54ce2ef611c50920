import { EXIT } from "./exit-codes.ts";

/** npm and our own starter hand on what the terminal sends as well: within this time it is the same wish. */
const SAME_WISH_MS = 1_000;

/** Aborts at Ctrl-C, SIGTERM and SIGHUP. Whoever asks once more, a second later, is obeyed at once. */
export function listenForStop(): AbortSignal {
  const stop = new AbortController();
  let askedAt: number | undefined;
  const ask = () => {
    const now = performance.now();
    askedAt ??= now;
    stop.abort();
    if (now - askedAt > SAME_WISH_MS) process.exit(EXIT.INTERRUPTED);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, ask);
  return stop.signal;
}
