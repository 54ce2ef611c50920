import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

export interface ScheduleRow {
  tenant_id: number;
  id: bigint;
  name: string;
  cron: string;
  time_zone: string;
  workflow: string;
  version: number;
  input: Buffer | null;
  labels: Record<string, string>;
  overlap: number;
  catch_up_ms: bigint;
  paused: boolean;
  next_at: Date | null;
  last_at: Date | null;
  last_run_id: bigint | null;
  started_count: bigint;
  skipped_count: bigint;
  missed_count: bigint;
  buffered_count: number;
  created_at: Date;
  updated_at: Date;
  /** What the clock said when the row was read, after any wait for its lock. */
  now: Date;
}

const COLUMNS = `tenant_id, id, name, cron, time_zone, workflow, version, input, labels, overlap, catch_up_ms, paused,
  next_at, last_at, last_run_id, started_count, skipped_count, missed_count, buffered_count, created_at, updated_at,
  clock_timestamp() AS now`;

/** What a person decides about a schedule. */
export interface ScheduleSettings {
  readonly cron: string;
  readonly timeZone: string;
  readonly workflow: string;
  readonly version: number;
  readonly input: Buffer | undefined;
  /** A JSON object. */
  readonly labels: string;
  readonly overlap: number;
  readonly catchUpMs: number;
}

const settingsOf = (p: ScheduleSettings) => [
  p.cron,
  p.timeZone,
  p.workflow,
  p.version,
  p.input ?? null,
  p.labels,
  p.overlap,
  p.catchUpMs,
];

export const readClock = async (db: Db): Promise<Date> =>
  (await db.one<{ now: Date }>("read_clock", "SELECT clock_timestamp() AS now", [])).now;

/** Inserts a schedule; nothing where the name is taken. */
export const insertSchedule = (
  db: Db,
  p: { tenantId: number; name: string; paused: boolean; nextAt: Date | undefined } & ScheduleSettings,
) =>
  db.find<ScheduleRow>(
    "insert_schedule",
    `
  INSERT INTO schedule (tenant_id, name, paused, next_at, cron, time_zone, workflow, version, input, labels, overlap,
    catch_up_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
  ON CONFLICT (tenant_id, name) DO NOTHING
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.name, p.paused, p.nextAt ?? null, ...settingsOf(p)],
  );

/** Changes a schedule, under its lock. */
export const changeSchedule = (
  db: Db,
  p: { tenantId: number; id: bigint; nextAt: Date | undefined } & ScheduleSettings,
) =>
  db.one<ScheduleRow>(
    "change_schedule",
    `
  UPDATE schedule
  SET next_at = $3, cron = $4, time_zone = $5, workflow = $6, version = $7, input = $8, labels = $9, overlap = $10,
    catch_up_ms = $11, updated_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.id, p.nextAt ?? null, ...settingsOf(p)],
  );

/** Pauses or resumes a schedule, under its lock. */
export const setSchedulePaused = (
  db: Db,
  p: { tenantId: number; id: bigint; paused: boolean; nextAt: Date | undefined },
) =>
  db.one<ScheduleRow>(
    "set_schedule_paused",
    `
  UPDATE schedule
  SET paused = $3, next_at = $4
  WHERE tenant_id = $1 AND id = $2
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.id, p.paused, p.nextAt ?? null],
  );

/** What one look at a schedule did, under its lock. Counts are added to. */
export const advanceSchedule = (
  db: Db,
  p: {
    tenantId: number;
    id: bigint;
    nextAt: Date | undefined;
    lastAt: Date | undefined;
    lastRunId: bigint | undefined;
    started: number;
    skipped: number;
    missed: number;
    buffered: number;
  },
) =>
  db.rows(
    "advance_schedule",
    `
  UPDATE schedule
  SET next_at = $3, last_at = coalesce($4, last_at), last_run_id = coalesce($5, last_run_id),
    started_count = started_count + $6, skipped_count = skipped_count + $7, missed_count = missed_count + $8,
    buffered_count = buffered_count + $9
  WHERE tenant_id = $1 AND id = $2`,
    [
      p.tenantId,
      p.id,
      p.nextAt ?? null,
      p.lastAt ?? null,
      p.lastRunId ?? null,
      p.started,
      p.skipped,
      p.missed,
      p.buffered,
    ],
  );

/** Deletes a schedule with its ticks; false where there is none. Its runs stay. */
export const deleteSchedule = async (db: Db, p: { tenantId: number; name: string }): Promise<boolean> => {
  const rows = await db.rows<{ id: bigint }>(
    "delete_schedule",
    "DELETE FROM schedule WHERE tenant_id = $1 AND name = $2 RETURNING id",
    [p.tenantId, p.name],
  );
  return rows.length > 0;
};

export const countSchedules = async (db: Db, p: { tenantId: number }): Promise<number> =>
  (
    await db.one<{ count: number }>(
      "count_schedules",
      "SELECT count(*)::int AS count FROM schedule WHERE tenant_id = $1",
      [p.tenantId],
    )
  ).count;

export const findSchedule = (db: Db, p: { tenantId: number; name: string }) =>
  db.find<ScheduleRow>("find_schedule", `SELECT ${COLUMNS} FROM schedule WHERE tenant_id = $1 AND name = $2`, [
    p.tenantId,
    p.name,
  ]);

/** By name, ascending, after `afterName`. */
export const listSchedules = (db: Db, p: { tenantId: number; prefix: string; afterName: string; limit: number }) =>
  db.rows<ScheduleRow>(
    "list_schedules",
    `
  SELECT ${COLUMNS} FROM schedule
  WHERE tenant_id = $1 AND name > $3 AND starts_with(name, $2)
  ORDER BY name
  LIMIT $4`,
    [p.tenantId, p.prefix, p.afterName, p.limit],
  );

/** Locks a schedule for a move that a person makes. */
export const lockSchedule = (db: Db, p: { tenantId: number; name: string }) =>
  db.find<ScheduleRow>(
    "lock_schedule",
    `
  SELECT ${COLUMNS} FROM schedule
  WHERE tenant_id = $1 AND name = $2
  FOR NO KEY UPDATE`,
    [p.tenantId, p.name],
  );

/** Whether there is work: a tick has come, or one is buffered. */
const HAS_WORK = "NOT paused AND (next_at <= clock_timestamp() OR buffered_count > 0)";

/** Locks a schedule that has work; nothing where another scheduler holds it or has done the work. */
export const lockDueSchedule = (db: Db, p: { tenantId: number; id: bigint }) =>
  db.find<ScheduleRow>(
    "lock_due_schedule",
    `
  SELECT ${COLUMNS} FROM schedule
  WHERE tenant_id = $1 AND id = $2 AND ${HAS_WORK}
  FOR NO KEY UPDATE SKIP LOCKED`,
    [p.tenantId, p.id],
  );

/**
 * Schedules that have work, of every tenant, but some: those with a tick that has come, and those with buffered ticks and
 * no active run.
 */
export const listDueSchedules = (db: Db, p: { limit: number; exceptIds: readonly bigint[] }) =>
  db.rows<{ tenant_id: number; id: bigint }>(
    "list_due_schedules",
    `
  SELECT tenant_id, id FROM (
    SELECT tenant_id, id FROM schedule
    WHERE next_at <= clock_timestamp() AND id <> ALL ($2::bigint[])
    ORDER BY next_at
    LIMIT $1
  ) AS due
  UNION
  SELECT tenant_id, id FROM (
    SELECT tenant_id, id FROM schedule
    WHERE buffered_count > 0 AND NOT paused AND id <> ALL ($2::bigint[])
      AND (overlap = 5 OR NOT EXISTS (
        SELECT FROM schedule_tick AS tick
        JOIN run ON run.tenant_id = tick.tenant_id AND run.id = tick.run_id
        WHERE tick.tenant_id = schedule.tenant_id AND tick.schedule_id = schedule.id AND tick.open
          AND run.state IN (1, 2, 3)))
    LIMIT $1
  ) AS free`,
    [p.limit, int8Array(p.exceptIds)],
  );
