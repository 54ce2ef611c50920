import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { inspect } from "@runmesh/standalone/doctor";
import type { Db } from "@runmesh/store/db";
import { CHECKS } from "@runmesh/store/invariants";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";

/** Runs in every state that a check looks at, none of which moves while the tests break them. */
interface Given {
  readonly running: bigint;
  readonly pending: bigint;
  readonly succeeded: bigint;
  /** Its task is suspended until a signal or a time. */
  readonly waiting: bigint;
}

let mesh: TestMesh;
let given: Given;

beforeAll(async () => {
  mesh = await startMesh();
  given = await giveRuns();
});

afterAll(() => mesh[Symbol.asyncDispose]());

async function giveRuns(): Promise<Given> {
  const worker = await mesh.worker({ leaseMs: 600_000 });
  const succeeded = await mesh.given.run();
  await worker.drain();
  const running = await mesh.given.run({
    tasks: [
      { key: "done", priority: 3 },
      { key: "waiting", priority: 2, retry: { initialInterval: "1h" } },
      { key: "leased", priority: 1 },
      { key: "ready" },
      { key: "blocked", dependsOn: ["ready"] },
    ],
  });
  const [done, waiting] = await worker.acquire(3);
  await worker.complete(done!);
  await worker.fail(waiting!);
  const pending = await mesh.given.run({}, { dueTime: timestampFromMs(Date.now() + 3_600_000) });
  const suspended = await mesh.given.run({ tasks: [{ priority: 9 }] });
  const { taskId, fence } = await worker.acquireOne();
  const go = { kind: StepKind.SIGNAL, name: "go", duration: { seconds: 3_600n } };
  await mesh.leases.suspendTask({ ...worker.session, taskId, fence, waits: [go] });
  await mesh.runs.cancelRun({ runId: await mesh.given.run({ tasks: [{ handler: "nobody" }] }) });
  await mesh.standalone.relayed();
  return { running, pending, succeeded, waiting: suspended };
}

class Undone extends Error {}

/** What the doctor finds of a state broken by hand, which is undone. */
async function findBroken(statement: string, runId: bigint): Promise<string[]> {
  let found: string[] = [];
  const broken = mesh.db.transaction(async (tx: Db) => {
    const rows = await tx.rows("", `${statement} RETURNING 1`, [runId]);
    expect(rows).toHaveLength(1);
    const findings = await inspect(tx);
    for (const { count, examples, advice } of findings) {
      expect({ count, examples: examples.length, advised: advice.length > 10 }).toEqual({
        count: 1,
        examples: 1,
        advised: true,
      });
    }
    found = findings.map((finding) => finding.check);
    throw new Undone();
  });
  await expect(broken).rejects.toBeInstanceOf(Undone);
  return found;
}

const OF_RUN = "task_id >> 20 = $1";
const PLACED = "task_id, route_id, rank, attempt, failures, losses";
const enterReady = (ordinal: number) => `
  INSERT INTO ready (tenant_id, ${PLACED}, ready_at)
  SELECT tenant_id, id, 1, 0, 0, 0, 0, clock_timestamp() FROM task WHERE id = ($1::bigint << 20) + ${ordinal}`;

interface Break {
  readonly check: string;
  readonly of: keyof Given;
  readonly statement: string;
  /** What else is wrong then. */
  readonly also?: readonly string[];
}

const schedule = (nextAt: string, bufferedCount: number) => `
  INSERT INTO schedule (tenant_id, name, cron, time_zone, workflow, version, overlap, catch_up_ms, next_at,
    buffered_count)
  SELECT tenant_id, 'broken', '@daily', 'UTC', 'any', 0, 1, 600000, ${nextAt}, ${bufferedCount} FROM run WHERE id = $1`;

const BREAKS: readonly Break[] = [
  {
    check: "a task stands in one place",
    of: "running",
    statement: `
  INSERT INTO scheduled (tenant_id, ${PLACED}, due_at)
  SELECT tenant_id, ${PLACED}, clock_timestamp() FROM ready WHERE ${OF_RUN}`,
  },
  {
    check: "an open task without dependencies to wait for stands somewhere",
    of: "running",
    statement: `DELETE FROM ready WHERE ${OF_RUN}`,
  },
  {
    check: "nothing stands anywhere of a run that is not active",
    of: "pending",
    statement: enterReady(0),
  },
  { check: "a task that ended stands nowhere", of: "running", statement: enterReady(0) },
  {
    check: "a task has at most one accepted result",
    of: "running",
    statement: `
  INSERT INTO attempt (tenant_id, task_id, fence, number, session_id, leased_at, ended_at, outcome, sequence)
  SELECT tenant_id, task_id, fence + 1000000, number, session_id, leased_at, ended_at, outcome, 0
  FROM attempt WHERE ${OF_RUN} AND outcome = 1`,
  },
  {
    check: "a run counts its tasks right",
    of: "running",
    statement: "UPDATE run SET dead_count = dead_count + 1 WHERE id = $1",
  },
  {
    check: "a run has ended when its tasks have, and only then",
    of: "succeeded",
    statement: "UPDATE run SET state = 2 WHERE id = $1",
    also: ["a run's events have no gap"],
  },
  {
    check: "a run's events have no gap",
    of: "running",
    statement: "UPDATE run SET sequence = sequence + 1 WHERE id = $1",
  },
  {
    check: "a lease is ended soon after its time",
    of: "running",
    statement: `UPDATE lease SET expires_at = clock_timestamp() - interval '2 minutes' WHERE ${OF_RUN}`,
  },
  {
    check: "a due task is made ready soon after its time",
    of: "running",
    statement: `UPDATE scheduled SET due_at = clock_timestamp() - interval '2 minutes' WHERE ${OF_RUN}`,
  },
  {
    check: "a due run timer fires soon after its time",
    of: "pending",
    statement: "UPDATE run_timer SET due_at = clock_timestamp() - interval '2 minutes' WHERE run_id = $1",
  },
  {
    check: "a PENDING run waits for its start time or its limit",
    of: "pending",
    statement: "DELETE FROM run_timer WHERE run_id = $1",
  },
  {
    check: "a slot is held by a task that is ready or leased",
    of: "running",
    statement:
      "INSERT INTO slot (tenant_id, key, task_id) SELECT tenant_id, 'k:x', $1::bigint << 20 FROM run WHERE id = $1",
    also: ["a limit's count agrees with its slots"],
  },
  {
    check: "a limit's count agrees with its slots",
    of: "running",
    statement: `
  INSERT INTO slot_count (tenant_id, key, used, waits)
  SELECT tenant_id, 'k:x', 1, false FROM run WHERE id = $1`,
  },
  {
    check: "a run's slot is held by a run that has not ended",
    of: "succeeded",
    statement: `
  INSERT INTO run_slot (tenant_id, key, run_id, slot_limit, active)
  SELECT tenant_id, 'w:x', id, 1, true FROM run WHERE id = $1`,
    also: ["a limit's count agrees with its slots"],
  },
  {
    check: "a task that waits for a limit is admitted when there is room",
    of: "running",
    statement: `
  WITH moved AS (DELETE FROM ready WHERE ${OF_RUN} RETURNING tenant_id, ${PLACED})
  INSERT INTO held (tenant_id, ${PLACED}, reason, due_at, held_at, slot_limit, run_limit)
  SELECT tenant_id, ${PLACED}, 3, clock_timestamp(), clock_timestamp() - interval '2 minutes', 0, 5 FROM moved`,
    also: ["a limit knows what waits for it"],
  },
  {
    check: "a limit knows what waits for it",
    of: "running",
    statement: `
  WITH moved AS (DELETE FROM ready WHERE ${OF_RUN} RETURNING tenant_id, ${PLACED})
  INSERT INTO held (tenant_id, ${PLACED}, reason, due_at, slot_limit, run_limit)
  SELECT tenant_id, ${PLACED}, 3, clock_timestamp(), 0, 5 FROM moved`,
  },
  {
    check: "a suspended task waits for something",
    of: "waiting",
    statement: `DELETE FROM step WHERE ${OF_RUN}`,
    also: ["a suspended task wakes with the first of its waits that has a time"],
  },
  {
    check: "what a suspended task waits for has not come yet",
    of: "waiting",
    statement: "INSERT INTO signal (tenant_id, run_id, name) SELECT tenant_id, id, 'go' FROM run WHERE id = $1",
  },
  {
    check: "a suspended task wakes with the first of its waits that has a time",
    of: "waiting",
    statement: `UPDATE suspended SET wake_at = wake_at + interval '1 hour' WHERE ${OF_RUN}`,
  },
  {
    check: "a suspended task is woken soon after its time",
    of: "waiting",
    statement: `
  WITH due AS (
    UPDATE step SET due_at = clock_timestamp() - interval '2 minutes' WHERE ${OF_RUN} RETURNING tenant_id, task_id, due_at
  )
  UPDATE suspended SET wake_at = due.due_at FROM due
  WHERE suspended.tenant_id = due.tenant_id AND suspended.task_id = due.task_id`,
  },
  {
    check: "a run keeps at most 1,000 signals that nobody took",
    of: "running",
    statement: `
  WITH many AS (
    INSERT INTO signal (tenant_id, run_id, name) SELECT tenant_id, id, 'x' FROM run, generate_series(1, 1000) WHERE id = $1
  )
  INSERT INTO signal (tenant_id, run_id, name) SELECT tenant_id, id, 'x' FROM run WHERE id = $1`,
  },
  {
    check: "the children of a task or run that ended without success follow it",
    of: "running",
    statement: `
  UPDATE run SET parent_run_id = parent.id, parent_task_id = parent.id << 20
  FROM (SELECT id FROM run WHERE state = 6) AS parent
  WHERE run.id = $1`,
  },
  {
    check: "committed events are sent soon",
    of: "running",
    statement: `
  INSERT INTO outbox (lane_group, tenant_id, at, size, run_ids, definition_ids, sequences, types)
  SELECT 0, tenant_id, clock_timestamp() - interval '2 minutes', 1, ARRAY[id], ARRAY[definition_id], ARRAY[1], ARRAY[1]
  FROM run WHERE id = $1`,
  },
  {
    check: "no run's events are parked",
    of: "running",
    statement: `
  INSERT INTO outbox_parked (tenant_id, run_id, sequence, body, error)
  SELECT tenant_id, id, 1, ''::bytea, 'refused' FROM run WHERE id = $1`,
  },
  {
    check: "a due schedule is moved soon after its time",
    of: "running",
    statement: schedule("clock_timestamp() - interval '2 minutes'", 0),
  },
  { check: "a schedule has a next tick unless it is paused", of: "running", statement: schedule("NULL", 0) },
  {
    check: "a schedule has at most 100 buffered ticks, and counts them right",
    of: "running",
    statement: schedule("clock_timestamp() + interval '1 hour'", 1),
  },
];

test("the doctor finds nothing wrong with runs in every state", async () => {
  expect(await mesh.standalone.doctor()).toEqual([]);
});

test.each(BREAKS)("the doctor sees that it is not so: $check", async ({ check, of, statement, also = [] }) => {
  const found = await findBroken(statement, given[of]);

  expect(found.sort()).toEqual([check, ...also].sort());
});

test("every check of the doctor is proven to fire", () => {
  expect(new Set(BREAKS.map(({ check }) => check)).size).toBe(CHECKS.length);
});
