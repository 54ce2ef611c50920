export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** By nearest rank, the mean of the middle two for the median of an even count. */
export function percentile(values: readonly number[], percent: number): number {
  if (values.length === 0) throw new Error("no values");
  const sorted = [...values].sort((a, b) => a - b);
  if (percent === 50 && sorted.length % 2 === 0) {
    return (sorted[sorted.length / 2 - 1]! + sorted[sorted.length / 2]!) / 2;
  }
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)]!;
}

/** To three digits, as more of them would claim more than a shared machine can measure. */
export function rounded(value: number): number {
  return Number.isFinite(value) ? Number(value.toPrecision(3)) : value;
}
