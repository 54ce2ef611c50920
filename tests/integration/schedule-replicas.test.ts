import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { startStandalone } from "@runmesh/standalone/standalone";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { AWAY, givenSchedule, isoSeconds, ticksOf } from "./given-schedule.ts";

const ALLOW = Schedule_Overlap.ALLOW;
const HALF_HOUR = 1_800_000;

/** One more of everything on the mesh's database. */
async function startReplica(mesh: TestMesh): Promise<AsyncDisposable & { stop(): Promise<void> }> {
  const replica = await startStandalone({ port: 0, databaseUrl: mesh.databaseUrl, logLevel: "silent" });
  let stopped: Promise<void> | undefined;
  const stop = () => (stopped ??= replica.stop());
  return { stop, [Symbol.asyncDispose]: stop };
}

/** Makes every schedule due from an instant on, with a catch-up window that reaches so far back. */
const makeDueSince = (mesh: TestMesh, since: number) =>
  mesh.db.rows("", "UPDATE schedule SET next_at = $1, catch_up_ms = 400 * 86400000::bigint", [new Date(since)]);

async function caughtUp(mesh: TestMesh): Promise<void> {
  const isBehind = "SELECT EXISTS (SELECT FROM schedule WHERE next_at <= clock_timestamp()) AS behind";
  await expect.poll(async () => (await mesh.db.one<{ behind: boolean }>("", isBehind, [])).behind, AWAY).toBe(false);
}

/** Every instant from `since`, a step apart, until the schedule's next tick. */
async function expectedTicks(mesh: TestMesh, name: string, since: number, stepMs: number): Promise<string[]> {
  const { next_at } = await mesh.db.one<{ next_at: Date }>("", "SELECT next_at FROM schedule WHERE name = $1", [name]);
  const count = Math.round((next_at.getTime() - since) / stepMs);
  return Array.from({ length: count }, (_, i) => isoSeconds(since + i * stepMs));
}

test("three schedulers start each tick of ten schedules once", async () => {
  await using mesh = await startMesh();
  await using _second = await startReplica(mesh);
  await using _third = await startReplica(mesh);
  const names = Array.from({ length: 10 }, (_, i) => `job-${i}`);
  for (const name of names) await givenSchedule(mesh, { name, cron: "*/20 * * * * *", overlap: ALLOW });

  const since = Math.floor(Date.now() / 20_000) * 20_000 - 400_000;
  await makeDueSince(mesh, since);
  await caughtUp(mesh);

  for (const name of names) {
    const expected = await expectedTicks(mesh, name, since, 20_000);
    expect((await ticksOf(mesh, name)).sort().slice(0, expected.length)).toEqual(expected);
    expect(new Set(await ticksOf(mesh, name)).size).toBe((await ticksOf(mesh, name)).length);
  }
});

test("a scheduler that is cut off and stopped amid its ticks leaves each to be started once by the next", async () => {
  await using mesh = await startMesh();
  const second = await startReplica(mesh);
  const names = ["a", "b", "c", "d"];
  for (const name of names) await givenSchedule(mesh, { name, cron: "* * * * * *", overlap: ALLOW });
  const count = async () =>
    (await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM schedule_tick", [])).n;

  const since = Math.floor(Date.now() / 1_000) * 1_000 - 420_000;
  await makeDueSince(mesh, since);
  for (const atLeast of [1, 300, 700]) {
    await expect.poll(count, AWAY).toBeGreaterThanOrEqual(atLeast);
    await mesh.db.rows(
      "",
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name <> 'runmesh-test' AND pid <> pg_backend_pid()`,
      [],
    );
  }
  await second.stop();
  await using _third = await startReplica(mesh);
  await mesh.db.rows("", "UPDATE schedule SET cron = '0 0 1 1 *' WHERE next_at > clock_timestamp()", []);
  await caughtUp(mesh);

  const ticks = await mesh.db.rows<{ name: string; ticks: number; runs: number; first: Date; last: Date }>(
    "",
    `SELECT schedule.name, count(*)::int AS ticks, count(DISTINCT run.id)::int AS runs, min(tick) AS first,
      max(tick) AS last
    FROM schedule
    JOIN schedule_tick AS tick ON tick.schedule_id = schedule.id
    JOIN run ON run.id = tick.run_id AND run.labels ->> 'runmesh.schedule' = schedule.name
      AND (run.labels ->> 'runmesh.tick')::timestamptz = tick.tick
    GROUP BY schedule.name ORDER BY schedule.name`,
    [],
  );
  expect(ticks.map((row) => row.name)).toEqual(names);
  for (const row of ticks) {
    expect(row.first.getTime()).toBe(since);
    expect(row.ticks).toBe((row.last.getTime() - since) / 1_000 + 1);
    expect(row.runs).toBe(row.ticks);
  }
  const { n: runCount } = await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM run", []);
  expect(runCount).toBe(await count());
});

/** What a clock on the wall shows, as if it were UTC. */
function wallOf(zone: string, at: number): number {
  const text = new Date(at).toLocaleString("sv-SE", { timeZone: zone });
  return Date.parse(`${text.replace(" ", "T")}Z`);
}

/** The last change of a zone's clock, over two days ago: `gap` where it was put forward, `overlap` where back. */
function lastChange(zone: string, kind: "gap" | "overlap"): number {
  const offset = (at: number) => wallOf(zone, at) - at;
  const isChange = (at: number, step: number) =>
    kind === "gap" ? offset(at) > offset(at - step) : offset(at) < offset(at - step);
  let day = Math.floor(Date.now() / 86_400_000) * 86_400_000 - 3 * 86_400_000;
  while (!isChange(day, 86_400_000)) day -= 86_400_000;
  let at = day;
  while (!isChange(at, HALF_HOUR)) at -= HALF_HOUR;
  return at;
}

const dateOf = (zone: string, at: number) => new Date(wallOf(zone, at)).toISOString().slice(0, 10);
const timeOf = (zone: string, at: number) => new Date(wallOf(zone, at)).toISOString().slice(11, 16);

/** The days before, of and after the change, as fields of a pattern. */
function daysAround(zone: string, change: number): { days: string; dates: string[] } {
  const dates = [-1, 0, 1].map((day) => dateOf(zone, change + day * 86_400_000));
  const unique = (values: number[]) => [...new Set(values)].join(",");
  const months = unique(dates.map((date) => Number(date.slice(5, 7))));
  return { days: `${unique(dates.map((date) => Number(date.slice(8))))} ${months} *`, dates };
}

test.each([
  ["America/New_York", "gap", "02:30"],
  ["America/New_York", "overlap", "01:30"],
  ["Australia/Lord_Howe", "gap", "02:15"],
  ["Australia/Lord_Howe", "overlap", "01:45"],
  ["Africa/Casablanca", "gap", "02:30"],
  ["Africa/Casablanca", "overlap", "02:30"],
] as const)("in %s, through the last %s, two schedulers start %s once a day", async (zone, kind, time) => {
  await using mesh = await startMesh();
  await using _second = await startReplica(mesh);
  const change = lastChange(zone, kind);
  const { days, dates } = daysAround(zone, change);
  const [hour, minute] = time.split(":").map(Number);
  const name = await givenSchedule(mesh, { cron: `${minute} ${hour} ${days}`, timeZone: zone, overlap: ALLOW });

  // The first of the three ticks lies before the change, where the clock is plain.
  const offset = wallOf(zone, change - 86_400_000) - (change - 86_400_000);
  await makeDueSince(mesh, Date.parse(`${dates[0]}T${time}Z`) - offset);
  await caughtUp(mesh);

  const ticks = (await ticksOf(mesh, name)).map((tick) => Date.parse(tick!)).sort((a, b) => a - b);
  const around = ticks.filter((tick) => dates.includes(dateOf(zone, tick)));
  expect(around.map((tick) => dateOf(zone, tick))).toEqual(dates);
  expect(new Set(ticks.map((tick) => dateOf(zone, tick))).size).toBe(ticks.length);
  for (const tick of around) if (tick !== change) expect(timeOf(zone, tick)).toBe(time);
});

test.each([
  ["America/New_York", "gap"],
  ["America/New_York", "overlap"],
  ["Australia/Lord_Howe", "gap"],
  ["Australia/Lord_Howe", "overlap"],
] as const)("in %s, half hours follow elapsed time through the last %s, under two schedulers", async (zone, kind) => {
  await using mesh = await startMesh();
  await using _second = await startReplica(mesh);
  const change = lastChange(zone, kind);
  const { days, dates } = daysAround(zone, change);
  const name = await givenSchedule(mesh, { cron: `*/30 * ${days}`, timeZone: zone, overlap: ALLOW });
  const expected: number[] = [];
  for (let at = change - 3 * 86_400_000; at < change + 3 * 86_400_000; at += HALF_HOUR) {
    if (dates.includes(dateOf(zone, at))) expected.push(at);
  }

  await makeDueSince(mesh, expected[0]!);
  await caughtUp(mesh);

  const ticks = (await ticksOf(mesh, name)).map((tick) => Date.parse(tick!)).sort((a, b) => a - b);
  expect(ticks.slice(0, expected.length).map(isoSeconds)).toEqual(expected.map(isoSeconds));
  expect(new Set(ticks).size).toBe(ticks.length);
});
