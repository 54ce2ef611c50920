import { int4Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";
import { STEP_KINDS } from "./steps.ts";

/** Signals that a run keeps for whoever will wait for them. */
export const MAX_SIGNALS = 1_000;

export const insertSignal = (db: Db, p: { tenantId: number; runId: bigint; name: string; value: Buffer | null }) =>
  db.rows(
    "insert_signal",
    `
  INSERT INTO signal (tenant_id, run_id, name, value) VALUES ($1, $2, $3, $4)`,
    [p.tenantId, p.runId, p.name, p.value],
  );

/** How many signals of a run nobody took. The run is locked. */
export const countSignals = async (db: Db, p: { tenantId: number; runId: bigint }): Promise<number> => {
  const { count } = await db.one<{ count: number }>(
    "count_signals",
    `
  SELECT count(*)::int AS count FROM signal WHERE tenant_id = $1 AND run_id = $2`,
    [p.tenantId, p.runId],
  );
  return count;
};

/** Takes the oldest signals of these names, one for each time that a name is given; the run is locked. */
export const takeSignals = (
  db: Db,
  p: { tenantId: number; runId: bigint; names: readonly string[]; counts: readonly number[] },
) =>
  db.rows<{ name: string; value: Buffer | null }>(
    "take_signals",
    `
  WITH taken AS (
    DELETE FROM signal
    WHERE tenant_id = $1 AND run_id = $2 AND id = ANY (ARRAY(
      SELECT oldest.id
      FROM unnest($3::text[], $4::int[]) AS wanted (name, count)
      CROSS JOIN LATERAL (
        SELECT id FROM signal
        WHERE tenant_id = $1 AND run_id = $2 AND name = wanted.name
        ORDER BY id
        LIMIT wanted.count
      ) AS oldest
    ))
    RETURNING id, name, value
  )
  SELECT name, value FROM taken ORDER BY id`,
    [p.tenantId, p.runId, p.names, int4Array(p.counts)],
  );

/**
 * The suspended task of a run that has waited longest for a signal of this name, its place locked. A wait whose time is
 * over is not one any more, though nobody has said so yet.
 */
export const findSignalWait = (db: Db, p: { tenantId: number; runId: bigint; name: string }) =>
  db.find<{ task_id: bigint; position: number }>(
    "find_signal_wait",
    `
  SELECT suspended.task_id, step.position
  FROM suspended
  JOIN step ON step.tenant_id = suspended.tenant_id AND step.task_id = suspended.task_id
  WHERE suspended.tenant_id = $1
    AND suspended.task_id >= $2::bigint << 20 AND suspended.task_id < ($2::bigint + 1) << 20
    AND step.task_id >= $2::bigint << 20 AND step.task_id < ($2::bigint + 1) << 20
    AND step.tenant_id = $1 AND step.kind = ${STEP_KINDS.SIGNAL} AND step.name = $3 AND step.done IS NULL
    AND (step.due_at IS NULL OR step.due_at > clock_timestamp())
  ORDER BY step.at, step.task_id, step.position
  LIMIT 1
  FOR UPDATE OF suspended`,
    [p.tenantId, p.runId, p.name],
  );
