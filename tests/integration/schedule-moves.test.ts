import { timestampFromDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { countsOf, givenSchedule, makeDue, runsOf, settled, ticksOf, YEARLY } from "./given-schedule.ts";

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

test("a trigger's repeat answers its run, whatever became of the schedule meanwhile", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);
  const { name: other } = await mesh.given.workflow();
  const first = await mesh.schedules.triggerSchedule({ name, requestId: "once" });
  const before = (await mesh.schedules.getSchedule({ name })).schedule!;

  await mesh.schedules.putSchedule({ schedule: { ...before, labels: { now: "another" } } });
  const relabelled = await mesh.schedules.triggerSchedule({ name, requestId: "once" });
  await mesh.schedules.putSchedule({ schedule: { ...before, workflow: other } });
  const moved = await mesh.schedules.triggerSchedule({ name, requestId: "once" });

  expect(relabelled).toMatchObject({ runId: first.runId, created: false });
  expect(moved).toMatchObject({ runId: first.runId, created: false });
  expect(await runsOf(mesh, name)).toHaveLength(1);
});

test("sixty triggers at once, each of a workflow that nobody has loaded, are all served", async () => {
  await using mesh = await startMesh();
  const names = Array.from({ length: 60 }, (_, i) => `job-${i}`);
  await Promise.all(names.map((name) => givenSchedule(mesh, { name })));

  const answers = await Promise.all(names.map((name) => mesh.schedules.triggerSchedule({ name })));

  expect(answers.every((answer) => answer.created)).toBe(true);
});

test("a pause or resume that is repeated by its request id undoes nothing that came after it", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);

  await mesh.schedules.pauseSchedule({ name, requestId: "p" });
  await mesh.schedules.resumeSchedule({ name, requestId: "r" });
  const resumed = await mesh.schedules.pauseSchedule({ name, requestId: "p" });
  await mesh.schedules.pauseSchedule({ name, requestId: "again" });
  const paused = await mesh.schedules.resumeSchedule({ name, requestId: "r" });

  expect(resumed.schedule!.paused).toBe(false);
  expect(paused.schedule!.paused).toBe(true);
});
