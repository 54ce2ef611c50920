import { int4Array } from "./binary-parameters.ts";
import { readIds } from "./complete-leases.ts";
import type { Db } from "./db.ts";

/** A lease just taken, with what the mesh must know to hand it out. */
export interface ClaimedLease {
  readonly taskId: bigint;
  readonly fence: bigint;
  /** Number of this attempt. */
  readonly attempt: number;
  readonly routeId: number;
  readonly definitionId: bigint;
  /** JSON text; `undefined` where the run has none, and where it is over 1 KiB (`hasInput` tells). */
  readonly input: Buffer | undefined;
  readonly hasInput: boolean;
  readonly expiresAtMs: number;
  readonly traceparent: string | null;
}

interface ClaimRow {
  candidates: number;
  task_ids: string | null;
  fences: string;
  attempts: string;
  route_ids: string;
  expires_at_ms: number;
  run_ids: string;
  definition_ids: string;
  input_sizes: string;
  inputs: Buffer | null;
  traceparents: string;
}

/**
 * Moves the best ready tasks of some routes under leases of one session. It looks at each route's head and takes from
 * the best down; rows another claim holds are passed over (SKIP LOCKED), so that nobody waits for anybody.
 *
 * Shaped against plan flips (a full scan of a small, just vacuumed table that stays cached): places by LATERAL with
 * OFFSET 0 and by ctid arrays, which is safe because `ready` rows are only inserted and deleted.
 */
export async function claimReady(
  db: Db,
  p: {
    tenantId: number;
    sessionId: bigint;
    routeIds: readonly number[];
    limit: number;
    leaseMs: number;
    acquireId: string | undefined;
  },
): Promise<{ leases: ClaimedLease[]; contended: boolean }> {
  const perRoute = Math.max(Math.ceil((p.limit * 4) / p.routeIds.length), 8);
  const row = await db.one<ClaimRow>("claim_ready", CLAIM_READY, [
    p.tenantId,
    p.sessionId,
    int4Array(p.routeIds),
    p.limit,
    Math.min(perRoute, p.limit),
    p.leaseMs,
    p.acquireId ?? null,
  ]);
  const leases = readClaim(row);
  return { leases, contended: leases.length < Math.min(row.candidates, p.limit) };
}

function readClaim(row: ClaimRow): ClaimedLease[] {
  if (row.task_ids === null) return [];
  const runs = readRuns(row);
  const fences = readIds(row.fences);
  const attempts = readNumbers(row.attempts);
  const routeIds = readNumbers(row.route_ids);
  return readIds(row.task_ids).map((taskId, i) => ({
    taskId,
    fence: fences[i]!,
    attempt: attempts[i]!,
    routeId: routeIds[i]!,
    expiresAtMs: row.expires_at_ms,
    ...runs.get(taskId >> 20n)!,
  }));
}

/** What the leases of a run have in common. */
function readRuns(row: ClaimRow) {
  const definitionIds = readIds(row.definition_ids);
  const sizes = readNumbers(row.input_sizes);
  const traceparents = row.traceparents.split(",");
  let at = 0;
  return new Map(
    readIds(row.run_ids).map((runId, i) => {
      const size = sizes[i]!;
      const isHere = size >= 0 && size <= 1024;
      const input = isHere ? row.inputs!.subarray(at, at + size) : undefined;
      if (isHere) at += size;
      return [
        runId,
        { definitionId: definitionIds[i]!, input, hasInput: size >= 0, traceparent: traceparents[i] || null },
      ];
    }),
  );
}

const readNumbers = (array: string): number[] => array.slice(1, -1).split(",").map(Number);

const CLAIM_READY = `
  WITH candidate AS MATERIALIZED (
    SELECT head.place
    FROM unnest($3::int[]) AS wanted (route_id)
    CROSS JOIN LATERAL (
      SELECT ready.ctid AS place, ready.rank, ready.ready_at
      FROM ready
      WHERE ready.route_id = wanted.route_id AND ready.tenant_id = $1
      ORDER BY ready.rank, ready.ready_at
      LIMIT $5
      OFFSET 0
    ) AS head
    ORDER BY head.rank, head.ready_at
    LIMIT $4
  ), taken AS (
    DELETE FROM ready
    WHERE ctid = ANY (ARRAY(
      SELECT ready.ctid FROM ready
      WHERE ready.ctid = ANY (ARRAY(SELECT place FROM candidate))
      FOR UPDATE SKIP LOCKED
    ))
    RETURNING task_id, route_id, rank, attempt, failures, losses, ready_at
  ), leased AS (
    INSERT INTO lease (tenant_id, task_id, fence, session_id, route_id, rank, attempt, failures, losses, ready_at,
      leased_at, expires_at, acquire_id)
    SELECT $1, task_id, nextval('fence'), $2, route_id, rank, attempt + 1, failures, losses, ready_at,
      (SELECT clock_timestamp()), (SELECT clock_timestamp() + $6::int * interval '1 ms'), $7::uuid
    FROM (SELECT task_id, route_id, rank, attempt, failures, losses, ready_at FROM taken ORDER BY rank, ready_at) AS taken
    RETURNING task_id, fence, attempt, route_id, expires_at
  ), given AS MATERIALIZED (
    SELECT array_agg(task_id)::text AS task_ids, array_agg(fence)::text AS fences, array_agg(attempt)::text AS attempts,
      array_agg(route_id)::text AS route_ids, floor(date_part('epoch', min(expires_at)) * 1000) AS expires_at_ms,
      array_agg(task_id >> 20) AS run_ids, min(task_id) >> 20 AS first_run_id, max(task_id) >> 20 AS last_run_id
    FROM leased
  ), runs AS (
    SELECT array_agg(id)::text AS run_ids, array_agg(definition_id)::text AS definition_ids,
      array_agg(coalesce(octet_length(input), -1))::text AS input_sizes,
      string_agg(CASE WHEN octet_length(input) <= 1024 THEN input END, ''::bytea) AS inputs,
      string_agg(coalesce(traceparent, ''), ',') AS traceparents
    FROM run
    WHERE tenant_id = $1 AND id = ANY ((SELECT run_ids FROM given)::bigint[])
      AND id >= (SELECT first_run_id FROM given) AND id <= (SELECT last_run_id FROM given)
  )
  SELECT (SELECT count(*)::int FROM candidate) AS candidates, given.task_ids, given.fences, given.attempts,
    given.route_ids, given.expires_at_ms, runs.run_ids, runs.definition_ids, runs.input_sizes, runs.inputs,
    runs.traceparents
  FROM given CROSS JOIN runs`;

/** Leases that an earlier acquire with the same request id took, as long as they live. */
export const findAcquired = (db: Db, p: { tenantId: number; sessionId: bigint; acquireId: string }) =>
  db.rows<{ task_id: bigint; fence: bigint; attempt: number; route_id: number; expires_at: Date }>(
    "find_acquired",
    `
  SELECT task_id, fence, attempt, route_id, expires_at FROM lease
  WHERE tenant_id + 0 = $1 AND session_id = $2 AND session_id > 0 AND acquire_id = $3 AND expires_at > clock_timestamp()
  ORDER BY task_id`,
    [p.tenantId, p.sessionId, p.acquireId],
  );
