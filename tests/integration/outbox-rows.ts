import { setTimeout as sleep } from "node:timers/promises";
import type { Db } from "@runmesh/store/db";

/** An event as the mesh's own statements would write it, in tenant 1. */
export interface GivenEvent {
  readonly runId: bigint;
  readonly sequence: number;
  readonly type?: number;
  readonly ordinal?: number;
  readonly sessionId?: bigint;
  readonly errorType?: string;
  readonly definitionId?: bigint;
}

/** A definition of tenant 1 with tasks of the keys given; answers its id. */
export async function givenDefinition(db: Db, workflow: string, keys: readonly string[]): Promise<bigint> {
  const body = Buffer.from(JSON.stringify({ name: workflow, tasks: keys.map((key) => ({ key })) }));
  const { id } = await db.one<{ id: bigint }>(
    "given_definition",
    `
  WITH named AS (INSERT INTO workflow (tenant_id, name, latest_version) VALUES (1, $1, 3) RETURNING id)
  INSERT INTO definition (tenant_id, workflow_id, version, content_hash, body, task_count, edge_count)
  SELECT 1, named.id, 3, sha256($2), $2, $3, 0 FROM named
  RETURNING id`,
    [workflow, body, keys.length],
  );
  return id;
}

/** Commits events in one transaction, which stays open for `holdMs` after it has written them. */
export async function commitEvents(
  db: Db,
  definitionId: bigint,
  events: readonly GivenEvent[],
  options: { holdMs?: number } = {},
): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.rows(
      "commit_events",
      `
  INSERT INTO outbox (lane_group, tenant_id, run_id, definition_id, sequence, type, task_id, attempt, fence, session_id,
    leased_at, started_at, outcome, error_type)
  SELECT (run_id & 15)::smallint, 1, run_id, coalesce(definition_id, $1), sequence, type, (run_id << 20) + ordinal, 1,
    sequence, session_id, now(), now(), 2, error_type
  FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::bigint[]) WITH ORDINALITY
    AS given (run_id, sequence, type, ordinal, session_id, error_type, definition_id, n)
  ORDER BY n`,
      [
        definitionId,
        events.map((event) => event.runId),
        events.map((event) => event.sequence),
        events.map((event) => event.type ?? 20),
        events.map((event) => event.ordinal ?? 0),
        events.map((event) => event.sessionId ?? null),
        events.map((event) => event.errorType ?? null),
        events.map((event) => event.definitionId ?? null),
      ],
    );
    if (options.holdMs !== undefined) await sleep(options.holdMs);
  });
}

export async function countOutbox(db: Db): Promise<number> {
  return (await db.one<{ count: number }>("count_outbox", "SELECT count(*)::int AS count FROM outbox", [])).count;
}
