import type { Db } from "./db.ts";
import { type Duty, dutyParams, holdsDuty } from "./duties.ts";

/**
 * Inline definitions that no kept run has. Invariants:
 *   1. Who starts a run of an inline definition says so first, unless it was said within the hour: so one that was not
 *      used for a day has no start in flight.
 *   2. A run that has it was created an hour after its last use at most. Ids of runs rise with time, but for blocks of an
 *      hour: so the oldest runs of its workflow tell whether one of them has it.
 *   3. One that is in use, or of which that cannot be told, counts as used now: it is looked at again after its time.
 */

/** Says that a definition is used. False where it is gone. */
export const useDefinition = async (db: Db, p: { tenantId: number; id: bigint }): Promise<boolean> => {
  const row = await db.find<{ id: bigint }>(
    "use_definition",
    `
  UPDATE definition SET used_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2
  RETURNING id`,
    [p.tenantId, p.id],
  );
  return row !== undefined;
};

/** Runs of a workflow that are looked at, oldest first. */
const OLDEST = 10_000;

/** Looks at inline definitions past their tenant's time, `limit` at most, and removes those that nobody has. */
export const removeUnusedDefinitions = (db: Db, p: { duty: Duty; limit: number; keepMs: number }) =>
  db.one<{ looked: number; removed: number }>(
    "remove_unused_definitions",
    `
  WITH looked AS MATERIALIZED (
    SELECT old.tenant_id, old.id, old.workflow_id, old.used_at
    FROM tenant
    LEFT JOIN tenant_quota AS quota ON quota.tenant_id = tenant.id
    CROSS JOIN LATERAL (
      SELECT tenant_id, id, workflow_id, used_at FROM definition
      WHERE tenant_id = tenant.id AND inline
        AND used_at < clock_timestamp() - greatest(
          interval '1 day', coalesce(quota.keep_days * interval '1 day', $2::bigint * interval '1 ms'))
      ORDER BY used_at
      LIMIT $1
    ) AS old
    LIMIT $1
  ), workflows AS MATERIALIZED (
    SELECT named.tenant_id, named.workflow_id, count(*) AS runs, max(oldest.created_at) AS newest,
      array_agg(DISTINCT oldest.definition_id) AS definition_ids
    FROM (SELECT DISTINCT tenant_id, workflow_id FROM looked) AS named
    CROSS JOIN LATERAL (
      SELECT definition_id, created_at FROM run
      WHERE tenant_id = named.tenant_id AND workflow_id = named.workflow_id AND workflow_id > 0
      ORDER BY id
      LIMIT ${OLDEST}
    ) AS oldest
    GROUP BY named.tenant_id, named.workflow_id
  ), judged AS MATERIALIZED (
    SELECT looked.tenant_id, looked.id, looked.used_at,
      NOT (looked.id = ANY (coalesce(workflows.definition_ids, '{}')))
        AND (workflows.runs IS NULL OR workflows.runs < ${OLDEST}
          OR workflows.newest > looked.used_at + interval '3 hours')
        -- Events that are not sent yet name the definition of their run.
        AND NOT EXISTS (
          SELECT FROM outbox
          WHERE outbox.tenant_id = looked.tenant_id AND looked.id = ANY (outbox.definition_ids)
        )
        AND NOT EXISTS (SELECT FROM outbox_parked WHERE outbox_parked.tenant_id = looked.tenant_id) AS is_unused
    FROM looked
    LEFT JOIN workflows ON workflows.tenant_id = looked.tenant_id AND workflows.workflow_id = looked.workflow_id
  ), removed AS (
    DELETE FROM definition
    USING judged
    WHERE definition.tenant_id = judged.tenant_id AND definition.id = judged.id
      AND definition.used_at = judged.used_at AND judged.is_unused
      AND ${holdsDuty(3)}
    RETURNING 1
  ), kept AS (
    UPDATE definition SET used_at = clock_timestamp()
    FROM judged
    WHERE definition.tenant_id = judged.tenant_id AND definition.id = judged.id AND NOT judged.is_unused
  )
  SELECT (SELECT count(*)::int FROM looked) AS looked, (SELECT count(*)::int FROM removed) AS removed`,
    [p.limit, p.keepMs, ...dutyParams(p.duty)],
  );
