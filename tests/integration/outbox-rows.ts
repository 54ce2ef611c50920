import { setTimeout as sleep } from "node:timers/promises";
import type { Db } from "@runmesh/store/db";
import { type EventRow, outboxRow, takeOutbox } from "@runmesh/store/outbox";
import { packEvents } from "@runmesh/store/outbox-packs";

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
  INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, task_ids, attempts, fences,
    session_ids, leased_ats, started_ats, outcomes, error_types)
  SELECT min(run_id & 15)::smallint, 1, count(*), array_agg(run_id ORDER BY n),
    array_agg(coalesce(definition_id, $1) ORDER BY n), array_agg(sequence ORDER BY n),
    array_agg(type::smallint ORDER BY n), array_agg((run_id << 20) + ordinal ORDER BY n), array_agg(1),
    array_agg(sequence::bigint ORDER BY n), array_agg(session_id ORDER BY n), array_agg(now()), array_agg(now()),
    array_agg(2::smallint), array_agg(error_type ORDER BY n)
  FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::bigint[], $9::int[])
    WITH ORDINALITY AS given (run_id, sequence, type, ordinal, session_id, error_type, definition_id, pack, n)
  GROUP BY pack
  ORDER BY pack`,
      [
        definitionId,
        events.map((event) => event.runId),
        events.map((event) => event.sequence),
        events.map((event) => event.type ?? 20),
        events.map((event) => event.ordinal ?? 0),
        events.map((event) => event.sessionId ?? null),
        events.map((event) => event.errorType ?? null),
        events.map((event) => event.definitionId ?? null),
        [...packEvents(events.map((event) => event.runId))],
      ],
    );
    if (options.holdMs !== undefined) await sleep(options.holdMs);
  });
}

export async function countOutbox(db: Db): Promise<number> {
  return (
    await db.one<{ count: number }>("count_outbox", "SELECT coalesce(sum(size), 0)::int AS count FROM outbox", [])
  ).count;
}

/** One pack, as a completion writes it: in each run a task succeeded as event 2, with which the run ended. */
export async function commitPack(db: Db, definitionId: bigint, runIds: readonly bigint[]): Promise<void> {
  await db.rows(
    "commit_pack",
    `
  INSERT INTO outbox (lane_group, tenant_id, size, run_ids, definition_ids, sequences, types, ends, task_ids, attempts,
    fences, session_ids, leased_ats, started_ats, outcomes)
  SELECT min(run_id & 15)::smallint, 1, 2 * count(*), array_agg(run_id), array_agg($1::bigint), array_agg(2),
    array_agg(20::smallint), array_agg(5::smallint), array_agg(run_id << 20), array_agg(1), array_agg(run_id),
    array_agg(8::bigint), array_agg(clock_timestamp()), array_agg(clock_timestamp()), array_agg(1::smallint)
  FROM unnest($2::bigint[]) AS given (run_id)`,
    [definitionId, runIds],
  );
}

/** The events of one run that wait, as the relay reads them. */
export async function readEvents(db: Db, runId: bigint): Promise<EventRow[]> {
  const rows = await takeOutbox(db, { laneGroups: [Number(runId & 15n)], perGroup: 100, limit: 100 });
  return rows.runIds.map((_, index) => outboxRow(rows, index)).filter((row) => row.runId === runId);
}

export async function countParkedMessages(db: Db): Promise<number> {
  const text = "SELECT count(*)::int AS count FROM bus_message WHERE parked_at IS NOT NULL";
  return (await db.one<{ count: number }>("count_parked_messages", text, [])).count;
}
