import { int4Array } from "./binary-parameters.ts";
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
  leases: string | null;
  inputs: Buffer | null;
  candidates: number;
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

type Packed = [string, string, number, number, string, number, number, string | null];

function readClaim(row: ClaimRow): ClaimedLease[] {
  if (row.leases === null) return [];
  const packed = JSON.parse(row.leases) as Packed[];
  let at = 0;
  return packed.map(([taskId, fence, attempt, routeId, definitionId, expiresAtMs, inputSize, traceparent]) => {
    const isHere = inputSize >= 0 && inputSize <= 1024;
    const input = isHere ? row.inputs!.subarray(at, at + inputSize) : undefined;
    if (isHere) at += inputSize;
    return {
      taskId: BigInt(taskId),
      fence: BigInt(fence),
      attempt,
      routeId,
      definitionId: BigInt(definitionId),
      input,
      hasInput: inputSize >= 0,
      expiresAtMs,
      traceparent,
    };
  });
}

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
    SELECT $1, task_id, nextval('fence'), $2, route_id, rank, attempt + 1, failures, losses, ready_at, clock_timestamp(),
      clock_timestamp() + $6::int * interval '1 ms', $7::uuid
    FROM (SELECT task_id, route_id, rank, attempt, failures, losses, ready_at FROM taken ORDER BY rank, ready_at) AS taken
    RETURNING task_id, fence, attempt, route_id, expires_at
  )
  SELECT
    (SELECT count(*)::int FROM candidate) AS candidates,
    '[' || string_agg(concat('["', leased.task_id, '","', leased.fence, '",', leased.attempt, ',', leased.route_id, ',"',
      run.definition_id, '",', floor(extract(epoch FROM leased.expires_at) * 1000), ',',
      coalesce(octet_length(run.input), -1), ',', coalesce('"' || run.traceparent || '"', 'null'), ']'), ',') || ']'
      AS leases,
    string_agg(CASE WHEN octet_length(run.input) <= 1024 THEN run.input END, ''::bytea) AS inputs
  FROM leased
  CROSS JOIN LATERAL (
    SELECT definition_id, input, traceparent FROM run
    WHERE tenant_id = $1 AND id = leased.task_id >> 20
    OFFSET 0
  ) AS run`;

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
