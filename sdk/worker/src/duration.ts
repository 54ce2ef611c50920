const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const MAX_MS = 366 * UNIT_MS.d!;

/** Reads a duration such as "1h30m" (ms, s, m, h, d; "0" is none), at most 366d, in milliseconds. */
export function readDuration(text: string): number {
  if (text === "0") return 0;
  const parts = typeof text !== "string" ? [] : [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/gy)];
  const length = parts.reduce((sum, part) => sum + part[0].length, 0);
  const ms = parts.reduce((sum, part) => sum + Number(part[1]) * UNIT_MS[part[2]!]!, 0);
  if (parts.length === 0 || length !== text.length || ms > MAX_MS) {
    throw new TypeError(
      `a duration is such as "1h30m" (ms, s, m, h, d), at most 366d, not ${typeof text === "string" ? JSON.stringify(text) : String(text)}`,
    );
  }
  return ms;
}
