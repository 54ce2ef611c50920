import { EVENT_TYPES } from "@runmesh/domain/states";
import { admitFreed } from "./admit-freed.ts";
import { int2Array, int4Array, int8Array, textArray } from "./binary-parameters.ts";
import { readIds } from "./complete-leases.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import type { TaskLimits } from "./limits.ts";
import { keysOf } from "./place-tasks.ts";
import { isRefused, PLACE_OPENED, settleSlots, wantedBy } from "./slot-counts.ts";

/** A run just started in the same transaction. */
export interface StartedLimitedRun {
  readonly runId: bigint;
  /** The limit that it shares with other runs, and stands PENDING for. */
  readonly shared: { readonly key: string; readonly limit: number } | undefined;
  /** Its start time has not come: it waits whether or not there is room. */
  readonly isLater: boolean;
  /** The tasks that wait for no other. */
  readonly roots: readonly StartedRoot[];
}

export interface StartedRoot {
  readonly taskId: bigint;
  readonly routeId: number;
  readonly rank: number;
  readonly limits: TaskLimits;
}

/**
 * Lets runs begin that were started PENDING under a shared limit, and places the first tasks of those that run, all in one
 * statement where there is room, so that their keys are locked in one order (slot-counts.ts). Where there is not, or
 * others wait, the best of those that wait are admitted in the same transaction. `runs` is in ascending order of id.
 */
export async function placeStarted(
  tx: Db,
  definitions: DefinitionCache,
  p: { tenantId: number; runs: readonly StartedLimitedRun[] },
): Promise<void> {
  const { tenantId, runs } = p;
  const sharing = runs.filter((run) => run.shared !== undefined);
  const roots = runs.flatMap((run) => (run.isLater ? [] : run.roots));
  const row = await tx.one<{ contended: string[] | null; refused: string | null }>("place_started", PLACE_STARTED, [
    tenantId,
    textArray(sharing.map((run) => run.shared!.key)),
    int8Array(sharing.map((run) => run.runId)),
    int4Array(sharing.map((run) => run.shared!.limit)),
    sharing.map((run) => run.isLater),
    int8Array(roots.map((root) => root.taskId)),
    int4Array(roots.map((root) => root.routeId)),
    int2Array(roots.map((root) => root.rank)),
    textArray(roots.map((root) => root.limits.key)),
    int4Array(roots.map((root) => root.limits.slotLimit)),
    int4Array(roots.map((root) => root.limits.runLimit)),
    runs[0]!.runId,
    runs.at(-1)!.runId,
  ]);
  if (row.contended === null) return;
  const refused = new Set(readIds(row.refused));
  const uncounted = roots.filter(({ taskId }) => refused.has(taskId) || refused.has(-(taskId >> 20n)));
  const keys = uncounted.flatMap((root) => keysOf(root.taskId, root.limits));
  await admitFreed(tx, definitions, { tenantId, keys: [...row.contended, ...keys] });
}

/** Among what wants slots a run goes by its id below zero, so that it is no task. Later ones want a slot of none. */
const PLACE_STARTED = `
  WITH sharing AS MATERIALIZED (
    SELECT key, run_id, most, is_later
    FROM unnest($2::text[], $3::bigint[], $4::int[], $5::boolean[]) AS run (key, run_id, most, is_later)
  ), root AS MATERIALIZED (
    SELECT task_id, route_id, rank, key, slot_limit, run_limit
    FROM unnest($6::bigint[], $7::int[], $8::smallint[], $9::text[], $10::int[], $11::int[])
      AS task (task_id, route_id, rank, key, slot_limit, run_limit)
  ),${settleSlots(`
      SELECT 'w:' || key, 0, -run_id, CASE WHEN is_later THEN 0 ELSE most END FROM sharing
      UNION ALL${wantedBy("root")}`)}, opened AS MATERIALIZED (
    SELECT task_id, route_id, rank, key, slot_limit, run_limit FROM root
    WHERE NOT ${isRefused("(-(task_id >> 20))")}
  ),${PLACE_OPENED}, entered AS (
    INSERT INTO run_slot (tenant_id, key, run_id, slot_limit, active)
    SELECT $1, key, run_id, most, NOT ${isRefused("(-run_id)")} FROM sharing
  ), begun AS (
    UPDATE run SET state = 2, sequence = sequence + 1, started_at = clock_timestamp()
    WHERE tenant_id = $1 AND id = ANY ($3::bigint[]) AND id >= $12::bigint AND id <= $13::bigint AND state = 1
      AND NOT ${isRefused("(-id)")}
    RETURNING id, definition_id, sequence
  ), told AS (
    INSERT INTO run_event (tenant_id, run_id, sequence, type, principal, at)
    SELECT $1, id, sequence, ${EVENT_TYPES.RUN_STARTED}, '', clock_timestamp() FROM begun
  ), events AS (
    INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types)
    SELECT (id & 15)::smallint, $1, 1, ARRAY[id], ARRAY[definition_id], ARRAY[sequence],
      ARRAY[${EVENT_TYPES.RUN_STARTED}::smallint]
    FROM begun
  )
  SELECT (SELECT keys FROM contended) AS contended, (SELECT ids FROM refused)::text AS refused`;
