import { invalidField } from "@runmesh/domain/errors";
import { exceedsUtf8 } from "@runmesh/domain/names";
import { Cron } from "croner";
import { LRUCache } from "lru-cache";

/** A pattern in a time zone. */
export interface CronClock {
  /** The first tick after an instant, in milliseconds; always a whole second. Undefined where none is left. */
  next(afterMs: number): number | undefined;
}

const DAY_MS = 86_400_000;
const MAX_PATTERN_BYTES = 256;
/** Patterns read so far: reading one takes about a millisecond. */
const clocks = new LRUCache<string, CronClock>({ max: 1_000 });
const SHORTHANDS = new Set(["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"]);
/** Hours that follow elapsed time, as cron has had it since the 1980s. */
const WILDCARD = /^(\*|\?)(\/|$)/;

/**
 * Reads a pattern of five or six fields, or a shorthand. Throws INVALID_FIELD naming `schedule.cron` or `schedule.time_zone`, for a
 * pattern that never comes too.
 */
export function readCron(pattern: string, timeZone: string): CronClock {
  const key = `${timeZone} ${pattern}`;
  const known = clocks.get(key);
  if (known !== undefined) return known;
  const clock = read(pattern, timeZone);
  clocks.set(key, clock);
  return clock;
}

function read(pattern: string, timeZone: string): CronClock {
  checkTimeZone(timeZone);
  const text = pattern.trim();
  if (exceedsUtf8(text, MAX_PATTERN_BYTES))
    throw invalidField("schedule.cron", `must be at most ${MAX_PATTERN_BYTES} bytes`);
  const fields = text.split(/\s+/);
  const isShorthand = text.startsWith("@");
  if (isShorthand ? !SHORTHANDS.has(text.toLowerCase()) : fields.length !== 5 && fields.length !== 6) {
    throw invalidField("schedule.cron", `must have five or six fields, or be one of ${[...SHORTHANDS].join(", ")}`);
  }
  const hours = isShorthand ? "0" : fields.at(-4)!;
  const clock = create(text, timeZone, isShorthand || WILDCARD.test(hours));
  if (clock.next(Date.now()) === undefined) throw invalidField("schedule.cron", "never comes");
  return clock;
}

/**
 * Croner follows elapsed time where hours are a wildcard, and is right for a single time of day. Of several times of
 * day it would leave out those in a gap and repeat those in an overlap, so these are found on a clock without changes,
 * and each is then looked up as a single time of day.
 */
function create(text: string, timeZone: string, isDirect: boolean): CronClock {
  const cron = parse(text, isDirect ? timeZone : "UTC");
  if (isDirect) return { next: (afterMs) => cron.nextRun(new Date(afterMs))?.getTime() };
  const wallClock = createWallClock(timeZone);
  return {
    next(afterMs) {
      for (let wall = cron.nextRun(wallClock(afterMs)); wall !== null; wall = cron.nextRun(wall)) {
        const tick = findInstant(wall.getTime(), (atMs) => wallClock(atMs).getTime());
        // In the second hour of an overlap its times were ticks of the first one.
        if (tick !== undefined && tick > afterMs) return tick;
      }
      return undefined;
    },
  };
}

function parse(text: string, timeZone: string): Cron {
  try {
    return new Cron(text, { timezone: timeZone, paused: true });
  } catch (cause) {
    throw invalidField(
      "schedule.cron",
      cause instanceof Error ? cause.message.replace(/^CronPattern: /, "") : String(cause),
    );
  }
}

/**
 * When a clock on the wall first shows this time. A time in a gap is the end of the gap; a day left out has none. Both
 * times on the wall are as if it were UTC.
 */
function findInstant(wall: number, wallClock: (atMs: number) => number): number | undefined {
  // No zone is more than a day away from UTC, and none changes its clock twice within two days.
  const [before, after] = [wall - DAY_MS, wall + DAY_MS].map((at) => wallClock(at) - at) as [number, number];
  const [first, second] = before >= after ? [wall - before, wall - after] : [wall - after, wall - before];
  if (wallClock(first) === wall) return first;
  if (wallClock(second) === wall) return second;
  // The change lies between the two: before it the clock showed less, from it on it shows more.
  let [low, high] = [first - 1_000, second];
  while (high - low > 1_000) {
    const middle = low + Math.floor((high - low) / 2_000) * 1_000;
    if (wallClock(middle) < wall) low = middle;
    else high = middle;
  }
  return Math.floor(wallClock(high) / DAY_MS) === Math.floor(wall / DAY_MS) ? high : undefined;
}

/** What a clock on the wall shows at an instant, as if it were UTC. */
function createWallClock(timeZone: string): (atMs: number) => Date {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  return (atMs) => {
    const parts = new Map(format.formatToParts(atMs).map((part) => [part.type, Number(part.value)]));
    const read = (type: Intl.DateTimeFormatPartTypes) => parts.get(type)!;
    return new Date(
      Date.UTC(read("year"), read("month") - 1, read("day"), read("hour"), read("minute"), read("second")),
    );
  };
}

function checkTimeZone(timeZone: string): void {
  const why = 'must be an IANA name, as in "Europe/Berlin"';
  // Offsets such as "+02:00" are understood too, but they know no summer time, which is seldom what was meant.
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(timeZone)) throw invalidField("schedule.time_zone", why);
  try {
    new Intl.DateTimeFormat("en-US", { timeZone });
  } catch (cause) {
    if (cause instanceof RangeError) throw invalidField("schedule.time_zone", why);
    throw cause;
  }
}
