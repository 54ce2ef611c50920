import { int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

interface OfSchedule {
  readonly tenantId: number;
  readonly scheduleId: bigint;
}

/** A tick with its run. Ticks are milliseconds since 1970. */
export interface StartedTick {
  readonly tick: number;
  readonly runId: bigint;
}

const timesOf = (ticks: readonly number[]) => ticks.map((tick) => new Date(tick).toISOString());

/** Which of these ticks have a run or wait for one. */
export const findKnownTicks = async (db: Db, p: OfSchedule & { ticks: readonly number[] }): Promise<Set<number>> => {
  if (p.ticks.length === 0) return new Set();
  const rows = await db.rows<{ tick: Date }>(
    "find_known_ticks",
    `
  SELECT tick FROM schedule_tick
  WHERE tenant_id = $1 AND schedule_id = $2 AND tick = ANY ($3::timestamptz[])`,
    [p.tenantId, p.scheduleId, timesOf(p.ticks)],
  );
  return new Set(rows.map((row) => row.tick.getTime()));
};

/** The buffered ticks that waited longest, by the time of the tick. */
export const listBufferedTicks = async (db: Db, p: OfSchedule & { limit: number }): Promise<number[]> => {
  if (p.limit === 0) return [];
  const rows = await db.rows<{ tick: Date }>(
    "list_buffered_ticks",
    `
  SELECT tick FROM schedule_tick
  WHERE tenant_id = $1 AND schedule_id = $2 AND run_id IS NULL
  ORDER BY tick
  LIMIT $3`,
    [p.tenantId, p.scheduleId, p.limit],
  );
  return rows.map((row) => row.tick.getTime());
};

/** Notes ticks that wait. Under the schedule's lock, after a look that they are not known. */
export const bufferTicks = async (db: Db, p: OfSchedule & { ticks: readonly number[] }): Promise<void> => {
  if (p.ticks.length === 0) return;
  await db.rows(
    "buffer_ticks",
    `
  INSERT INTO schedule_tick (tenant_id, schedule_id, tick, open)
  SELECT $1, $2, tick, false FROM unnest($3::timestamptz[]) AS tick`,
    [p.tenantId, p.scheduleId, timesOf(p.ticks)],
  );
};

/** Notes the runs of ticks, buffered before or not. A tick that has a run breaks the key: a tick starts once. */
export const noteStartedTicks = async (
  db: Db,
  p: OfSchedule & { started: readonly StartedTick[]; open: boolean },
): Promise<void> => {
  if (p.started.length === 0) return;
  const noted = await db.rows<{ run_id: bigint }>(
    "note_started_ticks",
    `
  INSERT INTO schedule_tick (tenant_id, schedule_id, tick, run_id, open)
  SELECT $1, $2, tick, run_id, $5
  FROM unnest($3::timestamptz[], $4::bigint[]) AS started (tick, run_id)
  ON CONFLICT (tenant_id, schedule_id, tick) DO UPDATE SET run_id = excluded.run_id, open = excluded.open
  WHERE schedule_tick.run_id IS NULL
  RETURNING run_id`,
    [
      p.tenantId,
      p.scheduleId,
      timesOf(p.started.map((item) => item.tick)),
      int8Array(p.started.map((item) => item.runId)),
      p.open,
    ],
  );
  if (noted.length !== p.started.length) throw new Error(`a tick of schedule ${p.scheduleId} had a run`);
};

/** Forgets buffered ticks that need no run any more. */
export const dropBufferedTicks = async (db: Db, p: OfSchedule & { ticks: readonly number[] }): Promise<void> => {
  if (p.ticks.length === 0) return;
  await db.rows(
    "drop_buffered_ticks",
    `
  DELETE FROM schedule_tick
  WHERE tenant_id = $1 AND schedule_id = $2 AND run_id IS NULL AND tick = ANY ($3::timestamptz[])`,
    [p.tenantId, p.scheduleId, timesOf(p.ticks)],
  );
};

/** Notes a run that no tick asked for, at an instant that is none of a tick nor of another trigger. Under the lock. */
export const noteTriggeredRun = (
  db: Db,
  p: OfSchedule & { runId: bigint; open: boolean; request: string | undefined },
) =>
  db.rows(
    "note_triggered_run",
    `
  WITH clock AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) AS at
  ), moment AS MATERIALIZED (
    SELECT coalesce(max(tick) + interval '1 ms', min(clock.at)) AS at
    FROM clock
    LEFT JOIN schedule_tick ON tenant_id = $1 AND schedule_id = $2 AND tick >= clock.at
      AND tick <> date_trunc('second', tick)
  )
  INSERT INTO schedule_tick (tenant_id, schedule_id, tick, run_id, open, request)
  SELECT $1, $2, CASE WHEN at = date_trunc('second', at) THEN at + interval '1 ms' ELSE at END, $3, $4, $5
  FROM moment`,
    [p.tenantId, p.scheduleId, p.runId, p.open, p.request ?? null],
  );

/** The run that a request triggered, whatever became of the schedule since. Under the lock. */
export const findTriggeredRun = (db: Db, p: OfSchedule & { request: string }) =>
  db.find<{ run_id: bigint }>(
    "find_triggered_run",
    `
  SELECT run_id FROM schedule_tick
  WHERE tenant_id = $1 AND schedule_id = $2 AND request = $3::uuid AND request IS NOT NULL`,
    [p.tenantId, p.scheduleId, p.request],
  );

/** Runs of the schedule that are active. Those that ended, or are gone, are not looked at again. */
export const listActiveRuns = async (db: Db, p: OfSchedule): Promise<bigint[]> => {
  const rows = await db.rows<{ run_id: bigint }>(
    "list_active_runs",
    `
  WITH standing AS MATERIALIZED (
    SELECT tick.tick, tick.run_id, EXISTS (
      SELECT FROM run WHERE run.tenant_id = $1 AND run.id = tick.run_id AND run.state IN (1, 2, 3)) AS active
    FROM schedule_tick AS tick
    WHERE tick.tenant_id = $1 AND tick.schedule_id = $2 AND tick.open
  ), closed AS (
    UPDATE schedule_tick SET open = false
    FROM standing
    WHERE schedule_tick.tenant_id = $1 AND schedule_tick.schedule_id = $2 AND schedule_tick.tick = standing.tick
      AND NOT standing.active
  )
  SELECT run_id FROM standing WHERE active
  ORDER BY run_id`,
    [p.tenantId, p.scheduleId],
  );
  return rows.map((row) => row.run_id);
};

/** Forgets ticks that were started over 7 days ago, of every tenant; answers how many. Their runs' keys remain. */
export const forgetTicks = async (db: Db, p: { limit: number }): Promise<number> => {
  const { count } = await db.one<{ count: number }>(
    "forget_ticks",
    `
  WITH old AS (
    DELETE FROM schedule_tick
    WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM schedule_tick
      WHERE created_at < clock_timestamp() - interval '7 days' AND run_id IS NOT NULL AND NOT open
      ORDER BY created_at
      LIMIT $1
      FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
  )
  SELECT count(*)::int AS count FROM old`,
    [p.limit],
  );
  return count;
};
