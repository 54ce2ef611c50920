import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import {
  AWAY,
  countsOf,
  givenSchedule,
  isoSeconds,
  makeDue,
  runsOf,
  settled,
  ticksOf,
  YEARLY,
} from "./given-schedule.ts";

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

test("a run that is started after a tick's has the larger id, so that the newest is listed first", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh);
  const before = await mesh.given.run();

  await makeDue(mesh, name, 5);
  await settled(mesh, name, (ticks) => ticks.started === 1);
  const after = await mesh.given.run();

  const [tick] = await runsOf(mesh, name);
  const { runs } = await mesh.runs.listRuns({});
  expect(runs.map((run) => run.id)).toEqual([after, tick!.id, before]);
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
  const name = await givenSchedule(mesh, { overlap: Schedule_Overlap.BUFFER_ALL });
  const first = await makeDue(mesh, name, 130, "* * * * * *");
  await settled(mesh, name, (ticks) => ticks.buffered === 100 && ticks.skipped >= 29);
  await mesh.schedules.pauseSchedule({ name });
  const worker = await mesh.worker();

  await worker.drain();
  await mesh.db.rows("", "UPDATE schedule SET cron = $1 WHERE name = $2", [YEARLY, name]);
  await mesh.schedules.resumeSchedule({ name });
  for (let i = 0; i < 3; i++) expect(await worker.complete(await worker.acquireOne())).toBe("accepted");
  await settled(mesh, name, (ticks) => ticks.started === 5);

  const ticks = await ticksOf(mesh, name);
  expect(ticks).toEqual([0, 1, 2, 3, 4].map((second) => isoSeconds(first.getTime() + second * 1_000)));
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
  const name = await givenSchedule(mesh, { overlap: Schedule_Overlap.ALLOW });

  const first = await makeDue(mesh, name, 300, "*/10 * * * * *");
  await settled(mesh, name, (ticks) => ticks.started >= 30);

  const ticks = await ticksOf(mesh, name);
  expect(new Set(ticks).size).toBe(ticks.length);
  expect(ticks[0]).toBe(isoSeconds(first));
  expect(ticks[1]).toBe(isoSeconds((Math.floor(first.getTime() / 10_000) + 1) * 10_000));
});

test("ticks older than the catch-up window are missed, later ones start", async () => {
  await using mesh = await startMesh();
  const name = await givenSchedule(mesh, { overlap: Schedule_Overlap.ALLOW, catchUpWindow: "1m" });

  await makeDue(mesh, name, 600, "*/10 * * * * *");
  await settled(mesh, name, (ticks) => ticks.started >= 6);

  const { missed, started } = await countsOf(mesh, name);
  expect(missed).toBeGreaterThanOrEqual(53);
  expect(missed + started).toBeGreaterThanOrEqual(60);
  expect(missed + started).toBeLessThanOrEqual(65);
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
  const shown = (await mesh.schedules.getSchedule({ name: broken })).schedule!;
  const { schedule: paused } = await mesh.schedules.pauseSchedule({ name: broken });
  await mesh.schedules.deleteSchedule({ name: broken });
  expect(findings).toMatchObject([
    { check: "a due schedule is moved soon after its time", examples: ["schedule broken"], severity: "error" },
  ]);
  expect(shown).toMatchObject({ timeZone: "Gone/Away", paused: false });
  expect(paused!.paused).toBe(true);
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

test("schedules that cannot be moved, more than are looked at together, hold up no other", async () => {
  await using mesh = await startMesh();
  const sound = await givenSchedule(mesh, { name: "sound" });
  await mesh.db.rows(
    "",
    `INSERT INTO schedule (tenant_id, name, paused, next_at, cron, time_zone, workflow, version, labels, overlap, catch_up_ms)
    SELECT tenant_id, 'broken-' || n, false, clock_timestamp() - interval '1 hour', cron, 'Gone/Away', workflow, version,
      labels, overlap, 7200000
    FROM schedule, generate_series(1, 250) AS n`,
    [],
  );

  await makeDue(mesh, sound, 5);
  await settled(mesh, sound, (ticks) => ticks.started === 1);

  await mesh.db.rows("", "DELETE FROM schedule WHERE name LIKE 'broken-%'", []);
});

test("old ticks are forgotten at once, however many there are", async () => {
  await using mesh = await startMesh();
  await givenSchedule(mesh, { paused: true });
  await mesh.db.rows(
    "",
    `INSERT INTO schedule_tick (tenant_id, schedule_id, tick, run_id, open, created_at)
    SELECT tenant_id, id, to_timestamp(n), n, false, clock_timestamp() - interval '8 days'
    FROM schedule, generate_series(1, 12000) AS n`,
    [],
  );
  const count = async () =>
    (await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM schedule_tick", [])).n;

  // The pauses between looks for old ticks are of ten seconds: twelve of them would take two minutes.
  await expect.poll(count, AWAY).toBe(0);
});
