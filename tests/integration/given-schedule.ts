import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ScheduleSchema } from "@runmesh/contracts/schedule/v1/schedule_pb";
import type { TestMesh } from "@runmesh/testing/mesh";
import { expect } from "vitest";

type ScheduleInit = Exclude<MessageInitShape<typeof ScheduleSchema>, { $typeName: string }>;

/** A tick a year: what is due in a test is what the test made due. */
export const YEARLY = "0 0 1 1 *";
export const AWAY = { timeout: 30_000, interval: 20 };

/** Puts a schedule named "job" on a workflow of its own. */
export async function givenSchedule(mesh: TestMesh, init: ScheduleInit = {}): Promise<string> {
  const { name: workflow } = await mesh.given.workflow();
  const schedule = { name: "job", cron: YEARLY, workflow, ...init };
  await mesh.schedules.putSchedule({ schedule });
  return schedule.name;
}

/** Makes a tick due so many seconds ago, as if the time had come, and those of `cron` since then; answers the first. */
export async function makeDue(mesh: TestMesh, name: string, secondsAgo: number, cron = YEARLY): Promise<Date> {
  const { next_at } = await mesh.db.one<{ next_at: Date }>(
    "",
    `UPDATE schedule SET next_at = date_trunc('second', clock_timestamp()) - $2 * interval '1 second', cron = $3
    WHERE name = $1 RETURNING next_at`,
    [name, secondsAgo, cron],
  );
  return next_at;
}

/** The schedule once it satisfies. */
export async function settled(mesh: TestMesh, name: string, satisfies: (ticks: Counts) => boolean) {
  await expect.poll(async () => satisfies(await countsOf(mesh, name)), AWAY).toBe(true);
  return (await mesh.schedules.getSchedule({ name })).schedule!;
}

export interface Counts {
  readonly started: number;
  readonly skipped: number;
  readonly missed: number;
  readonly buffered: number;
}

export async function countsOf(mesh: TestMesh, name: string): Promise<Counts> {
  const { started, skipped, missed, buffered } = (await mesh.schedules.getSchedule({ name })).schedule!.ticks!;
  return { started: Number(started), skipped: Number(skipped), missed: Number(missed), buffered };
}

/** Runs of a schedule, oldest first. */
export async function runsOf(mesh: TestMesh, name: string) {
  const { runs } = await mesh.runs.listRuns({ filter: { labels: { "runmesh.schedule": name } }, pageSize: 1_000 });
  return runs.sort((a, b) => Number(a.id - b.id));
}

export const ticksOf = async (mesh: TestMesh, name: string) =>
  (await runsOf(mesh, name)).map((run) => run.labels["runmesh.tick"]);

export const isoSeconds = (at: Date | number) => new Date(at).toISOString().replace(".000Z", "Z");
