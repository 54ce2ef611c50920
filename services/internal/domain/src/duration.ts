const DAY_MS = 86_400_000;

/** The longest duration anywhere: 366 days. */
export const MAX_DURATION_MS = 366 * DAY_MS;

const UNITS = [
  { name: "d", ms: DAY_MS },
  { name: "h", ms: 3_600_000 },
  { name: "m", ms: 60_000 },
  { name: "s", ms: 1000 },
  { name: "ms", ms: 1 },
] as const;

const SHAPE = /^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+)s)?(?:([0-9]+)ms)?$/;

/** Nothing longer is looked at; "366d" with leading zeros to spare. */
const MAX_LENGTH = 64;

export type DurationResult = { readonly ok: true; readonly ms: number } | { readonly ok: false; readonly why: string };

/**
 * Reads text such as "1h30m": whole numbers with the units d, h, m, s and ms, each at most once, largest first, at
 * most 366d together. Empty or "0" is 0.
 */
export function parseDuration(text: string): DurationResult {
  if (text === "" || text === "0") return { ok: true, ms: 0 };
  const parts = text.length <= MAX_LENGTH ? SHAPE.exec(text) : null;
  if (parts === null) {
    return { ok: false, why: 'must be a duration such as "1h30m" (whole numbers of d, h, m, s, ms, largest first)' };
  }
  let ms = 0;
  for (const [index, unit] of UNITS.entries()) {
    const count = parts[index + 1];
    if (count !== undefined) ms += Number(count) * unit.ms;
  }
  return ms <= MAX_DURATION_MS ? { ok: true, ms } : { ok: false, why: "must be at most 366d" };
}

/** Writes milliseconds so that `parseDuration` reads them back; 0 is "0s". A fraction of a millisecond is rounded. */
export function formatDuration(ms: number): string {
  if (!(ms >= 0 && Number.isFinite(ms))) throw new Error(`not a duration in milliseconds: ${ms}`);
  let rest = Math.round(ms);
  if (rest === 0) return "0s";
  let text = "";
  for (const unit of UNITS) {
    const count = Math.floor(rest / unit.ms);
    if (count > 0) text += `${count}${unit.name}`;
    rest -= count * unit.ms;
  }
  return text;
}
