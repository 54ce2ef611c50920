import { toEventMessage } from "@runmesh/bus/event-message";
import { EventNameReader } from "@runmesh/bus/event-names";
import type { Db } from "@runmesh/store/db";
import { type HistoryRow, listEvents } from "@runmesh/store/run-history";
import { useDatabase } from "@runmesh/testing/database";
import { expect, test } from "vitest";
import { givenDefinition } from "./outbox-rows.ts";

const RUN_ID = 7n;

test("the history of a failed, retried and then succeeded run has no gaps and tells each event once", async () => {
  await using database = await useDatabase();
  const { db } = database;
  await givenRun(db, { state: 4, sequence: 9 });
  await givenRunEvent(db, 2, 2, null);
  await givenAttempt(db, { ordinal: 0, sequence: 3, type: 21, outcome: 2, number: 1 });
  await givenAttempt(db, { ordinal: 0, sequence: 4, type: 23, outcome: 2, number: 2 });
  // The end that the retry has undone, and the retry.
  await givenRunEvent(db, 5, 6, null);
  await givenRunEvent(db, 6, 9, null);
  // A lease that was released has an attempt and no event.
  await givenAttempt(db, { ordinal: 0, sequence: 0, type: 0, outcome: 6, number: 3 });
  await givenAttempt(db, { ordinal: 0, sequence: 7, type: 20, outcome: 1, number: 4 });
  await givenRunEvent(db, 8, 24, (RUN_ID << 20n) + 1n);

  const events = await listEvents(db, { tenantId: 1, runId: RUN_ID, afterSequence: 0, limit: 100 });

  expect(events.map((event) => [event.sequence, event.type])).toEqual([
    [1, 1],
    [2, 2],
    [3, 21],
    [4, 23],
    [5, 6],
    [6, 9],
    [7, 20],
    [8, 24],
    [9, 5],
  ]);
});

test("a history entry reads as the same message that was sent", async () => {
  await using database = await useDatabase();
  const { db } = database;
  const definitionId = await givenRun(db, { state: 2, sequence: 2 });
  await givenAttempt(db, { ordinal: 1, sequence: 2, type: 21, outcome: 5, number: 3, errorType: "HEARTBEAT" });

  const rows = await listEvents(db, { tenantId: 1, runId: RUN_ID, afterSequence: 1, limit: 10 });
  const names = await new EventNameReader(db).find(rows);

  expect(toEventMessage(rows[0]!, names[0]!)).toMatchObject({
    id: "7-2",
    type: 21,
    tenant: "default",
    workflow: "order",
    workflowVersion: 3,
    taskId: (RUN_ID << 20n) + 1n,
    taskKey: "ship",
    attempt: 3,
    outcome: 5,
    errorType: "HEARTBEAT",
  });
  expect(rows[0]!.definitionId).toBe(definitionId);
});

test("a page after any sequence goes on where the last ended, also for a run of 3,000 tasks", async () => {
  await using database = await useDatabase();
  const { db } = database;
  await givenRun(db, { state: 4, sequence: 3_002 });
  await db.rows(
    "given_attempts",
    `INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, ended_at, outcome, sequence,
       event_type)
     SELECT 1, ($1::bigint << 20) + n, n, 1, 1, now(), now(), 1, 3002 - n, 20 FROM generate_series(1, 3000) AS n`,
    [RUN_ID],
  );

  const sequences: number[] = [];
  for (;;) {
    const afterSequence = sequences.at(-1) ?? 0;
    const page: HistoryRow[] = await listEvents(db, { tenantId: 1, runId: RUN_ID, afterSequence, limit: 1_000 });
    sequences.push(...page.map((event) => event.sequence));
    if (page.length < 1_000) break;
  }

  expect(sequences).toEqual(Array.from({ length: 3_002 }, (_, index) => index + 1));
});

test("the history of another tenant's run, or of none, is empty", async () => {
  await using database = await useDatabase();
  const { db } = database;
  await givenRun(db, { state: 2, sequence: 1 });

  const ofAnotherTenant = await listEvents(db, { tenantId: 2, runId: RUN_ID, afterSequence: 0, limit: 10 });
  const ofNone = await listEvents(db, { tenantId: 1, runId: 8n, afterSequence: 0, limit: 10 });

  expect([ofAnotherTenant, ofNone]).toEqual([[], []]);
});

async function givenRun(db: Db, run: { state: number; sequence: number }): Promise<bigint> {
  const definitionId = await givenDefinition(db, "order", ["pay", "ship"]);
  await db.rows(
    "given_run",
    `INSERT INTO run (tenant_id, id, definition_id, workflow_id, state, task_count, open_count, sequence, finished_at)
     VALUES (1, $1, $2, 1, $3::smallint, 2, 0, $4, CASE WHEN $3::smallint >= 4 THEN now() END)`,
    [RUN_ID, definitionId, run.state, run.sequence],
  );
  return definitionId;
}

const givenRunEvent = (db: Db, sequence: number, type: number, taskId: bigint | null) =>
  db.rows(
    "given_run_event",
    "INSERT INTO run_event (tenant_id, run_id, sequence, type, task_id) VALUES (1, $1, $2, $3, $4)",
    [RUN_ID, sequence, type, taskId],
  );

const givenAttempt = (
  db: Db,
  p: { ordinal: number; sequence: number; type: number; outcome: number; number: number; errorType?: string },
) =>
  db.rows(
    "given_attempt",
    `INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, ended_at, outcome, sequence,
       event_type, error_type)
     VALUES (1, ($1::bigint << 20) + $2::int, nextval('fence'), $3, 1, now(), now(), $4, $5, $6, $7)`,
    [RUN_ID, p.ordinal, p.number, p.outcome, p.sequence, p.type, p.errorType ?? null],
  );
