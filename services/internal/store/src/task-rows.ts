import { TASK_STATES } from "@runmesh/domain/states";
import type { Db } from "./db.ts";

/** A task as people see it: derived state, place, lease and last attempt. */
export interface TaskRow {
  id: bigint;
  pending: number;
  state: number;
  due_at: Date | null;
  lease_fence: bigint | null;
  lease_worker: string | null;
  leased_at: Date | null;
  started_at: Date | null;
  expires_at: Date | null;
  progress: Buffer | null;
  attempt_count: number;
  error_type: string | null;
  error_message: Buffer | null;
  error_details: Buffer | null;
  retryable: boolean | null;
}

/**
 * Tasks with ids in [fromId, toId], ascending, at most `limit`. `states` empty asks for all. Each task is looked up by
 * key in the places where it may stand, so a page costs what its rows cost, however large the run is.
 */
export const listTaskRows = (
  db: Db,
  p: { tenantId: number; fromId: bigint; toId: bigint; states: readonly number[]; limit: number },
) =>
  db.rows<TaskRow>(
    "list_task_rows",
    `
  SELECT seen.id, seen.pending, seen.state, seen.due_at, seen.lease_fence, seen.lease_worker, seen.leased_at,
    seen.started_at, seen.expires_at, seen.progress, seen.attempt_count,
    failed.error_type, failed.error_message, failed.error_details, failed.retryable
  FROM (
    SELECT task.id, task.pending, CASE
        WHEN task.state <> 0 THEN task.state
        WHEN done.fence IS NOT NULL THEN ${TASK_STATES.SUCCEEDED}
        WHEN lease.fence IS NOT NULL THEN ${TASK_STATES.LEASED}
        WHEN waits.place IN ('ready', 'held') THEN ${TASK_STATES.READY}
        WHEN waits.place = 'scheduled' THEN
          CASE WHEN waits.attempt > 0 THEN ${TASK_STATES.RETRY_WAIT} ELSE ${TASK_STATES.READY} END
        WHEN waits.place = 'suspended' THEN ${TASK_STATES.SUSPENDED}
        ELSE ${TASK_STATES.BLOCKED}
      END::int AS state,
      waits.due_at, lease.fence AS lease_fence, session.name AS lease_worker, lease.leased_at, lease.started_at,
      lease.expires_at, lease.progress,
      coalesce(lease.attempt, waits.attempt, ended.number, 0) AS attempt_count
    FROM task
    LEFT JOIN LATERAL (
      SELECT fence, number FROM attempt
      WHERE tenant_id = $1 AND task_id = task.id AND outcome = 1
      LIMIT 1
    ) AS done ON true
    LEFT JOIN lease ON lease.tenant_id = $1 AND lease.task_id = task.id
    LEFT JOIN session ON session.tenant_id = $1 AND session.id = lease.session_id
    LEFT JOIN LATERAL (
      SELECT 'ready' AS place, attempt, ready_at AS due_at FROM ready WHERE tenant_id = $1 AND task_id = task.id
      UNION ALL
      SELECT 'held', attempt, due_at FROM held WHERE tenant_id = $1 AND task_id = task.id
      UNION ALL
      SELECT 'scheduled', attempt, due_at FROM scheduled WHERE tenant_id = $1 AND task_id = task.id
      UNION ALL
      SELECT 'suspended', attempt, wake_at FROM suspended WHERE tenant_id = $1 AND task_id = task.id
      LIMIT 1
    ) AS waits ON true
    LEFT JOIN LATERAL (
      SELECT number FROM attempt WHERE tenant_id = $1 AND task_id = task.id ORDER BY fence DESC LIMIT 1
    ) AS ended ON true
    WHERE task.tenant_id = $1 AND task.id >= $2 AND task.id <= $3
  ) AS seen
  LEFT JOIN LATERAL (
    SELECT error_type, error_message, error_details, retryable FROM attempt
    WHERE tenant_id = $1 AND task_id = seen.id AND error_type IS NOT NULL
    ORDER BY fence DESC
    LIMIT 1
  ) AS failed ON true
  WHERE $4::int[] = '{}' OR seen.state = ANY ($4::int[])
  ORDER BY seen.id
  LIMIT $5`,
    [p.tenantId, p.fromId, p.toId, p.states, p.limit],
  );
