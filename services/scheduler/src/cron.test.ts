import { expect, test } from "vitest";
import { readCron } from "./cron.ts";

/** The ticks in [from, to), as UTC. */
function ticks(cron: string, timeZone: string, from: string, to: string): string[] {
  const clock = readCron(cron, timeZone);
  const found: string[] = [];
  let at = clock.next(Date.parse(from) - 1);
  while (at !== undefined && at < Date.parse(to)) {
    found.push(new Date(at).toISOString().replace(":00.000Z", "Z"));
    at = clock.next(at);
  }
  return found;
}

test("a time of day in the gap of spring is a tick at the gap's end, once that day", () => {
  expect(ticks("30 2 * * *", "America/New_York", "2026-03-07T05:00Z", "2026-03-10T04:00Z")).toEqual([
    "2026-03-07T07:30Z",
    "2026-03-08T07:00Z",
    "2026-03-09T06:30Z",
  ]);
});

test("a time of day in the overlap of autumn is a tick the first time only", () => {
  expect(ticks("30 1 * * *", "America/New_York", "2026-10-31T04:00Z", "2026-11-03T05:00Z")).toEqual([
    "2026-10-31T05:30Z",
    "2026-11-01T05:30Z",
    "2026-11-02T06:30Z",
  ]);
});

test("every half hour follows elapsed time through gap and overlap", () => {
  const spring = ticks("*/30 * * * *", "America/New_York", "2026-03-08T06:00Z", "2026-03-08T08:00Z");
  const autumn = ticks("*/30 * * * *", "America/New_York", "2026-11-01T05:00Z", "2026-11-01T07:30Z");

  expect(spring).toEqual(["2026-03-08T06:00Z", "2026-03-08T06:30Z", "2026-03-08T07:00Z", "2026-03-08T07:30Z"]);
  expect(autumn).toEqual([
    "2026-11-01T05:00Z",
    "2026-11-01T05:30Z",
    "2026-11-01T06:00Z",
    "2026-11-01T06:30Z",
    "2026-11-01T07:00Z",
  ]);
});

test("every second follows elapsed time through gap and overlap", () => {
  const clock = readCron("* * * * * *", "America/New_York");

  for (const change of ["2026-03-08T07:00Z", "2026-11-01T06:00Z", "2026-11-01T07:00Z"]) {
    const at = Date.parse(change) - 2_000;
    const found = [1, 2, 3, 4].reduce<number[]>((ticks) => [...ticks, clock.next(ticks.at(-1)!)!], [at]);
    expect(found.map((tick) => tick - at)).toEqual([0, 1_000, 2_000, 3_000, 4_000]);
  }
});

test("Lord Howe's half hour keeps fixed times to once a day and half hours to every half hour", () => {
  const zone = "Australia/Lord_Howe";

  expect(ticks("15 2 * * *", zone, "2026-10-02T14:00Z", "2026-10-05T13:00Z")).toEqual([
    "2026-10-02T15:45Z",
    "2026-10-03T15:30Z",
    "2026-10-04T15:15Z",
  ]);
  expect(ticks("45 1 * * *", zone, "2026-04-03T13:00Z", "2026-04-06T13:30Z")).toEqual([
    "2026-04-03T14:45Z",
    "2026-04-04T14:45Z",
    "2026-04-05T15:15Z",
  ]);
  expect(ticks("*/30 * * * *", zone, "2026-10-03T14:30Z", "2026-10-03T16:30Z")).toEqual([
    "2026-10-03T14:30Z",
    "2026-10-03T15:00Z",
    "2026-10-03T15:30Z",
    "2026-10-03T16:00Z",
  ]);
});

test("Casablanca's Ramadan moves a fixed time twice and keeps it to once a day", () => {
  expect(ticks("30 2 * * *", "Africa/Casablanca", "2026-02-14T00:00Z", "2026-02-17T00:00Z")).toEqual([
    "2026-02-14T01:30Z",
    "2026-02-15T01:30Z",
    "2026-02-16T02:30Z",
  ]);
  expect(ticks("30 2 * * *", "Africa/Casablanca", "2026-03-21T00:00Z", "2026-03-24T00:00Z")).toEqual([
    "2026-03-21T02:30Z",
    "2026-03-22T02:00Z",
    "2026-03-23T01:30Z",
  ]);
});

test("several times of day are each a tick once, in gap and overlap too", () => {
  const zone = "America/New_York";

  expect(ticks("0,30 1 * * *", zone, "2026-11-01T04:00Z", "2026-11-02T05:00Z")).toEqual([
    "2026-11-01T05:00Z",
    "2026-11-01T05:30Z",
  ]);
  expect(ticks("0 1-3 * * *", zone, "2026-11-01T04:00Z", "2026-11-02T05:00Z")).toEqual([
    "2026-11-01T05:00Z",
    "2026-11-01T07:00Z",
    "2026-11-01T08:00Z",
  ]);
  // Both times of the gap come together, at its end.
  expect(ticks("0,30 2 * * *", zone, "2026-03-08T05:00Z", "2026-03-10T04:00Z")).toEqual([
    "2026-03-08T07:00Z",
    "2026-03-09T06:00Z",
    "2026-03-09T06:30Z",
  ]);
  expect(ticks("30 2,3 * * *", zone, "2026-03-08T05:00Z", "2026-03-09T04:00Z")).toEqual([
    "2026-03-08T07:00Z",
    "2026-03-08T07:30Z",
  ]);
});

test("a schedule that begins in the second hour of an overlap does not repeat the first", () => {
  const clock = readCron("15,45 1 * * *", "America/New_York");

  const next = clock.next(Date.parse("2026-11-01T06:20Z"));

  expect(new Date(next!).toISOString()).toBe("2026-11-02T06:15:00.000Z");
});

test("a weekly time of day is a tick once in the week of a change", () => {
  expect(ticks("30 1 * * SUN", "America/New_York", "2026-10-30T00:00Z", "2026-11-12T00:00Z")).toEqual([
    "2026-11-01T05:30Z",
    "2026-11-08T06:30Z",
  ]);
});

test("an hourly pattern stays on the hour whenever it is asked", () => {
  const clock = readCron("@hourly", "UTC");

  expect(clock.next(Date.parse("2026-05-01T10:17:23.456Z"))).toBe(Date.parse("2026-05-01T11:00Z"));
  expect(clock.next(Date.parse("2026-05-01T10:59:59.999Z"))).toBe(Date.parse("2026-05-01T11:00Z"));
  expect(clock.next(Date.parse("2026-05-01T11:00Z"))).toBe(Date.parse("2026-05-01T12:00Z"));
});

test("a day that a zone left out has no tick", () => {
  expect(ticks("0 11,12 * * *", "Pacific/Apia", "2011-12-29T20:00Z", "2011-12-31T21:30Z")).toEqual([
    "2011-12-29T21:00Z",
    "2011-12-29T22:00Z",
    "2011-12-30T21:00Z",
    "2011-12-30T22:00Z",
    "2011-12-31T21:00Z",
  ]);
});

test.each([
  ["* * * *", "UTC", "schedule.cron"],
  ["* * * * * * *", "UTC", "schedule.cron"],
  ["x * * * *", "UTC", "schedule.cron"],
  ["61 * * * *", "UTC", "schedule.cron"],
  ["", "UTC", "schedule.cron"],
  ["@reboot", "UTC", "schedule.cron"],
  ["2026-01-01T00:00:00", "UTC", "schedule.cron"],
  ["0 0 31 2 *", "UTC", "schedule.cron"],
  [`${"1,".repeat(200)}1 * * * *`, "UTC", "schedule.cron"],
  ["* * * * *", "Nowhere/Land", "schedule.time_zone"],
  ["* * * * *", "+05:00", "schedule.time_zone"],
  ["* * * * *", "", "schedule.time_zone"],
])("%j in %j is refused, naming %s", (cron, timeZone, field) => {
  expect(() => readCron(cron, timeZone)).toThrowError(
    expect.objectContaining({ reason: "INVALID_FIELD", violations: [expect.objectContaining({ field })] }),
  );
});
