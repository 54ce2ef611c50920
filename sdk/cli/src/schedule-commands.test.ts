import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { Schedule_Overlap, ScheduleSchema } from "@runmesh/contracts/schedule/v1/schedule_pb";
import {
  type BackfillScheduleRequest,
  type PutScheduleRequest,
  ScheduleService,
} from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { expect, test } from "vitest";
import { serveRoutes } from "../test/routes-server.ts";
import { runCli } from "../test/run-cli.ts";

const at = (text: string) => timestampFromDate(new Date(text));

const NIGHTLY: MessageInitShape<typeof ScheduleSchema> = {
  name: "nightly",
  cron: "30 2 * * *",
  timeZone: "Europe/Berlin",
  workflow: "report",
  version: 3,
  overlap: Schedule_Overlap.BUFFER_ONE,
  catchUpWindow: "10m",
  nextTime: at("2026-03-02T01:30:00Z"),
  upcomingTimes: [at("2026-03-02T01:30:00Z"), at("2026-03-03T01:30:00Z")],
  lastRunId: 9007199254740993n,
  ticks: { started: 12n, skipped: 1n, missed: 2n, buffered: 1 },
  labels: { team: "billing" },
  inputPayload: { case: "inputJson", value: new TextEncoder().encode('{"n":9007199254740993}') },
};

async function serveSchedules() {
  const puts: PutScheduleRequest[] = [];
  const backfills: BackfillScheduleRequest[] = [];
  const moves: string[] = [];
  const schedule = create(ScheduleSchema, NIGHTLY);
  const server = await serveRoutes((router) =>
    router.service(ScheduleService, {
      putSchedule(request) {
        puts.push(request);
        return { schedule, created: true };
      },
      getSchedule: () => ({ schedule }),
      listSchedules: () => ({ schedules: [schedule, { ...NIGHTLY, name: "held", paused: true }] }),
      deleteSchedule({ name }) {
        moves.push(`delete ${name}`);
        return {};
      },
      pauseSchedule({ name }) {
        moves.push(`pause ${name}`);
        return { schedule };
      },
      resumeSchedule({ name }) {
        moves.push(`resume ${name}`);
        return { schedule };
      },
      triggerSchedule: () => ({ runId: 9007199254740993n, created: true }),
      backfillSchedule(request) {
        backfills.push(request);
        return { tickCount: 5, knownCount: 2 };
      },
    }),
  );
  const run = (...words: string[]) => runCli(["--url", server.url, "schedule", ...words]);
  return { puts, backfills, moves, run, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

test("put sends what was given, the input digit for digit", async () => {
  await using mesh = await serveSchedules();

  const { exitCode, stdout } = await mesh.run(
    ...["put", "nightly", "--cron", "30 2 * * *", "--workflow", "report@3", "--time-zone", "Europe/Berlin"],
    ...["--input", '{"n":9007199254740993}', "--label", "team=billing", "--overlap", "buffer-one", "--paused"],
  );

  expect(exitCode).toBe(0);
  expect(stdout[0]).toBe("Created schedule nightly");
  expect(mesh.puts[0]!.schedule).toMatchObject({
    name: "nightly",
    cron: "30 2 * * *",
    timeZone: "Europe/Berlin",
    workflow: "report",
    version: 3,
    overlap: Schedule_Overlap.BUFFER_ONE,
    catchUpWindow: "",
    labels: { team: "billing" },
    paused: true,
  });
  const { value } = mesh.puts[0]!.schedule!.inputPayload;
  expect(new TextDecoder().decode(value as Uint8Array)).toBe('{"n":9007199254740993}');
});

test("list shows a schedule a line, and whether it is paused", async () => {
  await using mesh = await serveSchedules();

  const { stdout } = await mesh.run("list");

  expect(stdout.map((line) => line.split(/ {2,}/))).toEqual([
    ["SCHEDULE", "CRON", "ZONE", "WORKFLOW", "OVERLAP", "NEXT (UTC)", "LAST RUN", "STARTED", "SKIPPED", "MISSED"],
    [
      ...["nightly", "30 2 * * *", "Europe/Berlin", "report@3", "buffer-one", "2026-03-02 01:30:00"],
      ...["9007199254740993", "12", "1", "2"],
    ],
    [
      ...["held", "30 2 * * *", "Europe/Berlin", "report@3", "buffer-one", "paused"],
      ...["9007199254740993", "12", "1", "2"],
    ],
  ]);
});

test("show prints the next ticks and counts, and with --json the message", async () => {
  await using mesh = await serveSchedules();

  const people = await mesh.run("show", "nightly");
  const scripts = await mesh.run("show", "nightly", "--json");

  expect(people.stdout).toContain("next      2026-03-02 01:30:00");
  expect(people.stdout).toContain("then      2026-03-03 01:30:00");
  expect(people.stdout).toContain("ticks     12 started, 1 skipped, 2 missed, 1 buffered");
  expect(scripts.stdout[0]).toContain('"lastRunId":"9007199254740993"');
  expect(scripts.stdout[0]).toContain('"overlap":"BUFFER_ONE"');
  expect(scripts.stdout[0]).toContain('"ticks":{"started":"12","skipped":"1","missed":"2","buffered":1}');
  expect(scripts.stdout[0]).toContain('"input":{"n":9007199254740993}');
});

test("delete, pause, resume and trigger name the schedule", async () => {
  await using mesh = await serveSchedules();

  const deleted = await mesh.run("delete", "nightly");
  const paused = await mesh.run("pause", "nightly");
  const resumed = await mesh.run("resume", "nightly");
  const triggered = await mesh.run("trigger", "nightly", "--json");

  expect(mesh.moves).toEqual(["delete nightly", "pause nightly", "resume nightly"]);
  expect(deleted.stdout).toEqual(["Deleted schedule nightly"]);
  expect(paused.stdout).toEqual(["Schedule nightly is paused"]);
  expect(resumed.stdout).toEqual(["Schedule nightly ticks next at 2026-03-02 01:30:00"]);
  expect(triggered.stdout).toEqual(['{"runId":"9007199254740993","created":true}']);
});

test("backfill sends its range, and how the ticks are to start", async () => {
  await using mesh = await serveSchedules();

  const range = ["backfill", "nightly", "--from", "2026-03-01", "--to", "2026-03-02T06:00:00+01:00"];
  const plain = await mesh.run(...range);
  await mesh.run(...range, "--at-once");
  await mesh.run(...range, "--in-turn");

  expect(plain.stdout).toEqual(["5 ticks start; 2 had a run or waited before"]);
  expect(timestampMs(mesh.backfills[0]!.from!)).toBe(Date.parse("2026-03-01T00:00:00Z"));
  expect(timestampMs(mesh.backfills[0]!.to!)).toBe(Date.parse("2026-03-02T05:00:00Z"));
  expect(mesh.backfills.map((asked) => asked.overlap)).toEqual([
    Schedule_Overlap.UNSPECIFIED,
    Schedule_Overlap.ALLOW,
    Schedule_Overlap.BUFFER_ALL,
  ]);
});

test.each([
  ["put", "nightly", "--cron", "@daily"],
  ["put", "nightly", "--cron", "@daily", "--workflow", "report", "--overlap", "maybe"],
  ["backfill", "nightly", "--from", "yesterday", "--to", "2026-03-02"],
  ["backfill", "nightly", "--from", "2026-03-01T06:00", "--to", "2026-03-02"],
  ["backfill", "nightly", "--from", "2026-03-01", "--to", "2026-03-02", "--at-once", "--in-turn"],
])("schedule %s %s %s … is wrong usage", async (...words) => {
  const { exitCode } = await runCli(["schedule", ...words]);

  expect(exitCode).toBe(2);
});
