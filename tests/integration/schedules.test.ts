import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Schedule_Overlap, type ScheduleSchema } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

type ScheduleInit = Exclude<MessageInitShape<typeof ScheduleSchema>, { $typeName: string }>;

/** A tick a year: what is due in a test is what the test made due. */
const YEARLY = "0 0 1 1 *";
const AWAY = { timeout: 15_000, interval: 20 };

/** Puts a schedule named "job" on a workflow of its own. */
async function givenSchedule(mesh: TestMesh, init: ScheduleInit = {}): Promise<string> {
  const { name: workflow } = await mesh.given.workflow();
  const schedule = { name: "job", cron: YEARLY, workflow, ...init };
  await mesh.schedules.putSchedule({ schedule });
  return schedule.name;
}

/** Makes a tick due so many seconds ago, as if the time had come; answers it. */
async function makeDue(mesh: TestMesh, name: string, secondsAgo: number): Promise<Date> {
  const { next_at } = await mesh.db.one<{ next_at: Date }>(
    "",
    `UPDATE schedule SET next_at = date_trunc('second', clock_timestamp()) - $2 * interval '1 second'
    WHERE name = $1 RETURNING next_at`,
    [name, secondsAgo],
  );
  return next_at;
}

/** The schedule once it satisfies. */
async function settled(mesh: TestMesh, name: string, satisfies: (ticks: Counts) => boolean) {
  await expect.poll(async () => satisfies(await countsOf(mesh, name)), AWAY).toBe(true);
  return (await mesh.schedules.getSchedule({ name })).schedule!;
}

interface Counts {
  readonly started: number;
  readonly skipped: number;
  readonly missed: number;
  readonly buffered: number;
}

async function countsOf(mesh: TestMesh, name: string): Promise<Counts> {
  const { started, skipped, missed, buffered } = (await mesh.schedules.getSchedule({ name })).schedule!.ticks!;
  return { started: Number(started), skipped: Number(skipped), missed: Number(missed), buffered };
}

/** Runs of a schedule, oldest first. */
async function runsOf(mesh: TestMesh, name: string) {
  const { runs } = await mesh.runs.listRuns({ filter: { labels: { "runmesh.schedule": name } }, pageSize: 1_000 });
  return runs.sort((a, b) => Number(a.id - b.id));
}

const ticksOf = async (mesh: TestMesh, name: string) =>
  (await runsOf(mesh, name)).map((run) => run.labels["runmesh.tick"]);

const isoSeconds = (at: Date | number) => new Date(at).toISOString().replace(".000Z", "Z");

test("a tick starts a run with the schedule's input and labels, which tell its name and time", async () => {
  await using mesh = await startMesh();
  const input = { case: "inputJson" as const, value: Buffer.from('{"n":9007199254740993}') };
  const name = await givenSchedule(mesh, { labels: { team: "billing" }, inputPayload: input });

  const tick = await makeDue(mesh, name, 5);
  const schedule = await settled(mesh, name, (ticks) => ticks.started === 1);

  const [run] = await runsOf(mesh, name);
  expect(run!.labels).toEqual({ team: "billing", "runmesh.schedule": "job", "runmesh.tick": isoSeconds(tick) });
  const whole = (await mesh.runs.getRun({ runId: run!.id })).run!;
  expect(Buffer.from(whole.inputJson).toString()).toBe('{"n":9007199254740993}');
  expect(schedule.lastRunId).toBe(run!.id);
  expect(timestampMs(schedule.lastTime!)).toBe(tick.getTime());
  expect(timestampMs(schedule.nextTime!)).toBeGreaterThan(Date.now());
  expect(schedule.upcomingTimes).toHaveLength(5);
});

test("putting a schedule again changes it and keeps its pause, its counts and its next tick", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);
  await makeDue(mesh, name, 5);
  const before = await settled(mesh, name, (ticks) => ticks.started === 1);

  const again = await mesh.schedules.putSchedule({ schedule: { ...before, overlap: Schedule_Overlap.ALLOW } });
  await mesh.schedules.pauseSchedule({ name });
  const paused = await mesh.schedules.putSchedule({ schedule: { ...before, paused: false } });

  expect(again).toMatchObject({ created: false, schedule: { overlap: Schedule_Overlap.ALLOW, paused: false } });
  expect(again.schedule!.nextTime).toEqual(before.nextTime);
  expect(again.schedule!.ticks!.started).toBe(1n);
  expect(paused.schedule).toMatchObject({ paused: true });
  expect(paused.schedule!.nextTime).toBeUndefined();
});

test("ten puts of one name at once leave one schedule", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow();
  const put = async () => {
    for (;;) {
      try {
        return await mesh.schedules.putSchedule({ schedule: { name: "one", cron: YEARLY, workflow } });
      } catch (error) {
        if ((error as { reason?: string }).reason !== "UNAVAILABLE") throw error;
      }
    }
  };

  const answers = await Promise.all(Array.from({ length: 10 }, put));

  expect(answers.filter((answer) => answer.created)).toHaveLength(1);
  expect((await mesh.schedules.listSchedules({})).schedules.map((schedule) => schedule.name)).toEqual(["one"]);
});

test.each([
  [{ cron: "61 * * * *" }, "INVALID_FIELD", "schedule.cron"],
  [{ cron: "0 0 31 2 *" }, "INVALID_FIELD", "schedule.cron"],
  [{ timeZone: "Mars/Olympus" }, "INVALID_FIELD", "schedule.time_zone"],
  [{ catchUpWindow: "9s" }, "INVALID_FIELD", "schedule.catch_up_window"],
  [{ labels: { "runmesh.tick": "x" } }, "INVALID_FIELD", 'schedule.labels["runmesh.tick"]'],
  [{ name: "a b" }, "INVALID_FIELD", "schedule.name"],
  [{ workflow: "nobody-registered-it" }, "NOT_FOUND", "workflow"],
])("a schedule with %j is refused with %s of %s", async (wrong, reason, field) => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow();

  const put = mesh.schedules.putSchedule({ schedule: { name: "job", cron: YEARLY, workflow, ...wrong } });

  await expect(put).rejects.toMatchObject({ reason, violations: [{ field }] });
});

test("a tick is skipped while a run is active, and starts after its end", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);
  await makeDue(mesh, name, 9);
  await settled(mesh, name, (ticks) => ticks.started === 1);

  await makeDue(mesh, name, 6);
  await settled(mesh, name, (ticks) => ticks.skipped === 1);
  await (await mesh.worker()).drain();
  await makeDue(mesh, name, 3);
  await settled(mesh, name, (ticks) => ticks.started === 2);

  expect(await countsOf(mesh, name)).toEqual({ started: 2, skipped: 1, missed: 0, buffered: 0 });
});

test("buffer one keeps one tick waiting, which starts when the active run has ended", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { overlap: Schedule_Overlap.BUFFER_ONE });
  await makeDue(mesh, name, 9);
  await settled(mesh, name, (ticks) => ticks.started === 1);
  const waiting = await makeDue(mesh, name, 6);
  await settled(mesh, name, (ticks) => ticks.buffered === 1);
  await makeDue(mesh, name, 3);
  await settled(mesh, name, (ticks) => ticks.skipped === 1);

  await (await mesh.worker()).drain();
  await settled(mesh, name, (ticks) => ticks.started === 2);

  expect(await countsOf(mesh, name)).toEqual({ started: 2, skipped: 1, missed: 0, buffered: 0 });
  expect((await ticksOf(mesh, name))[1]).toBe(isoSeconds(waiting));
});

test("buffer all keeps a hundred ticks waiting and starts them in order, one at a time", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { cron: "* * * * * *", overlap: Schedule_Overlap.BUFFER_ALL });
  await makeDue(mesh, name, 130);
  await settled(mesh, name, (ticks) => ticks.buffered === 100 && ticks.skipped >= 29);
  await mesh.schedules.pauseSchedule({ name });
  const worker = await mesh.worker();

  await worker.drain();
  await mesh.db.rows("", "UPDATE schedule SET cron = $1 WHERE name = $2", [YEARLY, name]);
  await mesh.schedules.resumeSchedule({ name });
  for (let i = 0; i < 3; i++) expect(await worker.complete(await worker.acquireOne())).toBe("accepted");
  await settled(mesh, name, (ticks) => ticks.started === 5);

  const ticks = await ticksOf(mesh, name);
  expect(ticks).toEqual([...ticks].sort());
  expect(await countsOf(mesh, name)).toMatchObject({ started: 5, buffered: 96 });
});

test("cancel previous cancels the active run and starts the tick", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { overlap: Schedule_Overlap.CANCEL_PREVIOUS });
  await makeDue(mesh, name, 9);
  await settled(mesh, name, (ticks) => ticks.started === 1);
  const worker = await mesh.worker();
  const lease = await worker.acquireOne();

  await makeDue(mesh, name, 6);
  await settled(mesh, name, (ticks) => ticks.started === 2);

  const runs = await runsOf(mesh, name);
  expect(runs.map((run) => run.state)).toEqual([Run_State.CANCELLED, Run_State.RUNNING]);
  expect((await worker.lost()).taskId).toBe(lease.taskId);
  expect(await worker.complete(lease)).toBe("RUN_NOT_ACTIVE");
});

test("allow starts every tick beside the others", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { cron: "*/10 * * * * *", overlap: Schedule_Overlap.ALLOW });

  const first = await makeDue(mesh, name, 300);
  await settled(mesh, name, (ticks) => ticks.started >= 30);

  const ticks = await ticksOf(mesh, name);
  expect(new Set(ticks).size).toBe(ticks.length);
  expect(ticks[0]).toBe(isoSeconds(first));
  expect(ticks[1]).toBe(isoSeconds((Math.floor(first.getTime() / 10_000) + 1) * 10_000));
});

test("ticks older than the catch-up window are missed, later ones start", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, {
    cron: "*/10 * * * * *",
    overlap: Schedule_Overlap.ALLOW,
    catchUpWindow: "1m",
  });

  await makeDue(mesh, name, 600);
  await settled(mesh, name, (ticks) => ticks.started >= 6);

  const { missed, started } = await countsOf(mesh, name);
  expect(missed).toBeGreaterThanOrEqual(53);
  expect(missed + started).toBeGreaterThanOrEqual(60);
  expect(missed + started).toBeLessThanOrEqual(65);
});

test("a paused schedule starts nothing, and goes on with the next tick after its resume", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { paused: true });
  const other = await givenSchedule(mesh, { name: "other" });

  await makeDue(mesh, other, 5);
  await settled(mesh, other, (ticks) => ticks.started === 1);
  const { schedule } = await mesh.schedules.resumeSchedule({ name });

  expect(await countsOf(mesh, name)).toEqual({ started: 0, skipped: 0, missed: 0, buffered: 0 });
  expect(timestampMs(schedule!.nextTime!)).toBeGreaterThan(Date.now());
});

test("a trigger starts a run now, once for its request id, and later ticks see it", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);

  const first = await mesh.schedules.triggerSchedule({ name, requestId: "again" });
  const second = await mesh.schedules.triggerSchedule({ name, requestId: "again" });
  const third = await mesh.schedules.triggerSchedule({ name });
  await makeDue(mesh, name, 5);
  await settled(mesh, name, (ticks) => ticks.skipped === 1);

  expect(first.created).toBe(true);
  expect(second).toMatchObject({ runId: first.runId, created: false });
  expect(third.created).toBe(true);
  expect((await runsOf(mesh, name)).map((run) => run.id)).toEqual([first.runId, third.runId]);
});

test("a backfill starts the ticks of a past range, each once however often it is asked", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, {
    cron: "30 1 * * *",
    timeZone: "America/New_York",
    overlap: Schedule_Overlap.ALLOW,
  });
  const range = {
    name,
    from: timestampFromDate(new Date("2025-11-01T00:00Z")),
    to: timestampFromDate(new Date("2025-11-04T00:00Z")),
  };

  const [one, two] = await Promise.all([
    mesh.schedules.backfillSchedule(range),
    mesh.schedules.backfillSchedule(range),
  ]);

  expect([one.tickCount + two.tickCount, one.knownCount + two.knownCount]).toEqual([3, 3]);
  expect((await ticksOf(mesh, name)).sort()).toEqual([
    "2025-11-01T05:30:00Z",
    "2025-11-02T05:30:00Z",
    "2025-11-03T06:30:00Z",
  ]);
});

test("a backfill of a schedule that allows no overlap runs one tick after the other, at most a hundred", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { cron: "0 12 * * *" });
  const backfill = (from: string, to: string) =>
    mesh.schedules.backfillSchedule({
      name,
      from: timestampFromDate(new Date(from)),
      to: timestampFromDate(new Date(to)),
    });

  const answer = await backfill("2025-05-01T00:00Z", "2025-05-04T00:00Z");
  const tooMany = backfill("2024-01-01T00:00Z", "2025-01-01T00:00Z");
  await expect(tooMany).rejects.toMatchObject({ reason: "TOO_LARGE" });
  const worker = await mesh.worker();
  for (let i = 1; i <= 3; i++) {
    const lease = await worker.acquireOne();
    expect(await runsOf(mesh, name)).toHaveLength(i);
    expect(await worker.complete(lease)).toBe("accepted");
  }

  expect(answer).toMatchObject({ tickCount: 3, knownCount: 0 });
  expect(await ticksOf(mesh, name)).toEqual(["2025-05-01T12:00:00Z", "2025-05-02T12:00:00Z", "2025-05-03T12:00:00Z"]);
});

test("a backfill does not reach into the future", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);

  const asked = mesh.schedules.backfillSchedule({
    name,
    from: timestampFromDate(new Date("2025-01-01T00:00Z")),
    to: timestampFromDate(new Date(Date.now() + 60_000)),
  });

  await expect(asked).rejects.toMatchObject({ reason: "INVALID_FIELD", violations: [{ field: "to" }] });
});

test("deleting a schedule keeps its runs, and the same wish again is answered the same", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);
  const { runId } = await mesh.schedules.triggerSchedule({ name });

  await mesh.schedules.deleteSchedule({ name, requestId: "bye" });
  await mesh.schedules.deleteSchedule({ name, requestId: "bye" });

  await expect(mesh.schedules.deleteSchedule({ name })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  await expect(mesh.schedules.getSchedule({ name })).rejects.toMatchObject({ reason: "NOT_FOUND" });
  expect((await mesh.runs.getRun({ runId })).run!.state).toBe(Run_State.RUNNING);
});

test("a schedule that cannot be moved holds up no other, and the doctor names it", async () => {
  await using mesh = await startMesh();
  const broken = await givenSchedule(mesh, { name: "broken" });
  const sound = await givenSchedule(mesh, { name: "sound" });
  await mesh.db.rows("", "UPDATE schedule SET time_zone = 'Gone/Away' WHERE name = $1", [broken]);

  await makeDue(mesh, broken, 300);
  await makeDue(mesh, sound, 5);
  await settled(mesh, sound, (ticks) => ticks.started === 1);

  const findings = await mesh.standalone.doctor();
  await mesh.schedules.deleteSchedule({ name: broken });
  expect(findings).toMatchObject([
    { check: "a due schedule is moved soon after its time", examples: ["schedule broken"], severity: "error" },
  ]);
});

test("the doctor finds buffered ticks beyond the limit, a wrong count, and a schedule that would never tick", async () => {
  await using mesh = await startMesh();
  const crowded = await givenSchedule(mesh, { name: "crowded", paused: true });
  const miscounted = await givenSchedule(mesh, { name: "miscounted", paused: true });
  const stopped = await givenSchedule(mesh, { name: "stopped" });
  await mesh.db.rows(
    "",
    `WITH crowded AS (UPDATE schedule SET buffered_count = 101 WHERE name = $1 RETURNING tenant_id, id),
    miscounted AS (UPDATE schedule SET buffered_count = 2 WHERE name = $2),
    stopped AS (UPDATE schedule SET next_at = NULL WHERE name = $3)
    INSERT INTO schedule_tick (tenant_id, schedule_id, tick, open)
    SELECT tenant_id, id, to_timestamp(n), false FROM crowded, generate_series(1, 101) AS n`,
    [crowded, miscounted, stopped],
  );

  const findings = await mesh.standalone.doctor();
  for (const name of [crowded, miscounted, stopped]) await mesh.schedules.deleteSchedule({ name });

  const found = findings.map(({ check, examples }) => [check, examples.sort()]);
  expect(found).toEqual([
    ["a schedule has a next tick unless it is paused", ["schedule stopped"]],
    ["a schedule has at most 100 buffered ticks, and counts them right", ["schedule crowded", "schedule miscounted"]],
  ]);
});

test("a tick that the workflow's own limit refuses is skipped", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow({ concurrency: { key: "one", limit: 1, onConflict: 3 } });
  const name = await givenSchedule(mesh, { workflow, overlap: Schedule_Overlap.ALLOW });
  await makeDue(mesh, name, 9);
  await settled(mesh, name, (ticks) => ticks.started === 1);

  await makeDue(mesh, name, 6);
  await settled(mesh, name, (ticks) => ticks.skipped === 1);

  expect(await runsOf(mesh, name)).toHaveLength(1);
});
