/** Milliseconds of the process's monotonic clock: the same in every thread, unlike `performance.now()`. */
export function monotonicMs(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * 1_000 + nanos / 1e6;
}
