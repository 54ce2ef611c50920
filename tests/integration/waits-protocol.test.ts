/** What the mesh does with records and waits, driven by hand: what any worker, in any language, builds on. */
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import {
  list,
  record,
  resultWait,
  signal,
  signalWait,
  sleepWait,
  startChild,
  stateOf,
  step,
  suspend,
  text,
} from "./wait-calls.ts";

test("what a handler recorded is there for its next attempt, in the order it ended, and stays as it was", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();

  await record(mesh, worker, first, step(1, "b", "two"), step(0, "a", { n: 1 }));
  await record(mesh, worker, first, step(0, "a", "other"), {
    position: 2,
    kind: StepKind.STEP,
    name: "c",
    error: { type: "Broken", message: "no" },
  });
  await worker.release(first);
  const second = await worker.acquireOne();
  const { steps, hasMore } = await list(mesh, worker, second);

  expect(
    steps.map(({ position, name, done, valueJson, error }) => [position, name, done, text(valueJson), error?.type]),
  ).toEqual([
    [0, "a", 2, '{"n":1}', undefined],
    [1, "b", 1, '"two"', undefined],
    [2, "c", 4, "", "Broken"],
  ]);
  expect(hasMore).toBe(false);
  await worker.complete(second);
  expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
});

test("a stale fence, another session and an ended run can neither record, list nor suspend", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const other = await mesh.worker({ name: "other" });
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();
  await worker.release(first);
  const second = await worker.acquireOne();

  await expect(record(mesh, worker, first, step(0, "a", 1))).rejects.toMatchObject({ reason: "FENCE_STALE" });
  await expect(record(mesh, other, second, step(0, "a", 1))).rejects.toMatchObject({ reason: "FENCE_STALE" });
  await expect(list(mesh, other, second)).rejects.toMatchObject({ reason: "FENCE_STALE" });
  await expect(suspend(mesh, worker, first, sleepWait(0, 60_000))).rejects.toMatchObject({ reason: "FENCE_STALE" });
  await mesh.runs.cancelRun({ runId });
  await expect(record(mesh, worker, second, step(0, "a", 1))).rejects.toMatchObject({ reason: "RUN_NOT_ACTIVE" });
  await expect(suspend(mesh, worker, second, sleepWait(0, 60_000))).rejects.toMatchObject({ reason: "RUN_NOT_ACTIVE" });
  expect(await mesh.db.rows("", "SELECT position FROM step", [])).toEqual([]);
});

test("a sleep frees the worker, burns no attempt, and wakes the task by the database's clock", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ retry: { maxAttempts: 1 } }] });
  const first = await worker.acquireOne();

  const { suspended } = await suspend(mesh, worker, first, sleepWait(0, 300));
  const state = await stateOf(mesh, first.taskId);
  const again = await suspend(mesh, worker, first, sleepWait(0, 300));
  const second = await worker.acquireOne();

  expect([suspended, state, again.suspended]).toEqual([true, Task_State.SUSPENDED, true]);
  expect(second.attempt).toBe(2);
  expect((await list(mesh, worker, second)).steps[0]).toMatchObject({ kind: StepKind.SLEEP, done: 1, timedOut: false });
  await worker.fail(second);
  expect((await mesh.ended(runId)).state).toBe(Run_State.FAILED);
  const { events } = await mesh.runs.listEvents({ runId });
  const { RUN_CREATED, TASK_SUSPENDED, TASK_DEAD, RUN_FAILED } = EventType;
  expect(events.map((event) => event.type)).toEqual([RUN_CREATED, TASK_SUSPENDED, TASK_DEAD, RUN_FAILED]);
});

test("a signal wakes who waits for it, and one that came before answers at once, first in, first out", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();
  await signal(mesh, runId, "go", 1);
  await signal(mesh, runId, "other", "x");
  await signal(mesh, runId, "go", 2, "twice");
  await signal(mesh, runId, "go", 2, "twice");

  const early = await suspend(mesh, worker, first, signalWait(0, "go"), signalWait(1, "go", undefined, 1));
  const late = await suspend(mesh, worker, first, signalWait(2, "go", undefined, 2));
  await signal(mesh, runId, "go", 3);
  const second = await worker.acquireOne();
  const { steps } = await list(mesh, worker, second);

  expect(early.suspended).toBe(false);
  expect(early.steps.map((s) => text(s.valueJson))).toEqual(["1", "2"]);
  expect(late.suspended).toBe(true);
  expect(steps.map((s) => text(s.valueJson))).toEqual(["1", "2", "3"]);
  expect(await mesh.db.rows("", "SELECT name FROM signal", [])).toEqual([{ name: "other" }]);
  await worker.complete(second);
  await expect(signal(mesh, runId, "go", 4)).rejects.toMatchObject({ reason: "ILLEGAL_MOVE" });
});

test("a lease that is to stay goes on whether something is over or not, and its waits count from then", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const lease = await worker.acquireOne();
  const stay = (...waits: ReturnType<typeof signalWait>[]) =>
    mesh.leases.suspendTask({ ...worker.session, taskId: lease.taskId, fence: lease.fence, waits, stay: true });

  const none = await stay(signalWait(0, "go"), signalWait(1, "late", 300));
  await signal(mesh, runId, "go", 1);
  const one = await stay(signalWait(0, "go"));
  const later = await suspend(mesh, worker, lease, signalWait(1, "late", 300_000));
  const woken = later.suspended ? await worker.acquireOne() : lease;

  expect([none.suspended, none.steps, one.suspended]).toEqual([false, [], false]);
  expect(one.steps.map((s) => text(s.valueJson))).toEqual(["1"]);
  expect((await list(mesh, worker, woken)).steps[1]).toMatchObject({ name: "late", timedOut: true });
  await worker.complete(woken);
});

test("a wait that timed out says so, and its signal goes to the next that waits", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();

  await suspend(mesh, worker, first, signalWait(0, "go", 200));
  const second = await worker.acquireOne();
  const timedOut = (await list(mesh, worker, second)).steps;
  await signal(mesh, runId, "go", "late");
  const next = await suspend(mesh, worker, second, signalWait(1, "go", 60_000, 1));

  expect(timedOut).toMatchObject([{ done: 1, timedOut: true }]);
  expect(next.steps.map((s) => text(s.valueJson))).toEqual(['"late"']);
  await worker.complete(second);
});

test("the first of several waits wakes the task, and the others go on waiting", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();

  await suspend(mesh, worker, first, signalWait(0, "a"), sleepWait(1, 60_000), signalWait(2, "b"));
  await signal(mesh, runId, "b", "B");
  const second = await worker.acquireOne();
  const { steps } = await list(mesh, worker, second);

  expect(steps.map((s) => s.done)).toEqual([0, 0, 1]);
  await signal(mesh, runId, "a", "A");
  expect((await suspend(mesh, worker, second, signalWait(0, "a"), sleepWait(1, 60_000))).steps).toMatchObject([
    { position: 0, done: 2 },
  ]);
  await worker.complete(second);
});

test("two tasks that wait for one name are served in the order in which they began to wait", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{}, {}] });
  const [a, b] = await worker.acquire(2);
  await suspend(mesh, worker, b!, signalWait(0, "go"));
  await suspend(mesh, worker, a!, signalWait(0, "go"));

  await signal(mesh, runId, "go", 1);
  const first = await worker.acquireOne();
  await signal(mesh, runId, "go", 2);
  const second = await worker.acquireOne();

  expect([first.taskId, second.taskId]).toEqual([b!.taskId, a!.taskId]);
  await worker.complete(first);
  await worker.complete(second);
});

test("a run keeps at most 1,000 signals that nobody took", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run();
  await mesh.db.rows(
    "",
    "INSERT INTO signal (tenant_id, run_id, name) SELECT 1, $1, 'go' FROM generate_series(1, 999)",
    [runId],
  );

  await signal(mesh, runId, "go", 1_000);

  await expect(signal(mesh, runId, "go", 1_001)).rejects.toMatchObject({ reason: "OVERLOADED" });
  await worker.drain();
});

test("a call that is recorded as another is refused with its position", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  await mesh.given.run();
  const lease = await worker.acquireOne();
  await record(mesh, worker, lease, step(0, "a", 1));

  await expect(suspend(mesh, worker, lease, signalWait(0, "go"))).rejects.toMatchObject({ reason: "INVALID_FIELD" });
  await expect(suspend(mesh, worker, lease, resultWait(1, "child"))).rejects.toMatchObject({ reason: "INVALID_FIELD" });
  await worker.complete(lease);
});

test("a paused run's task that wakes is held, and goes on with the resume", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ concurrency: { key: "k", limit: 1 } }] });
  const first = await worker.acquireOne();
  await suspend(mesh, worker, first, signalWait(0, "go"));
  await mesh.runs.pauseRun({ runId });

  await signal(mesh, runId, "go", 1);
  const whilePaused = await worker.acquire(1);
  await mesh.runs.resumeRun({ runId });
  const second = await worker.acquireOne();

  expect(whilePaused).toEqual([]);
  expect(second.attempt).toBe(2);
  await worker.complete(second);
});

test("a suspended task gives its slot to the next, and passes its limit anew when it wakes", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const limited = { tasks: [{ concurrency: { key: "k", limit: 1 } }] };
  const runId = await mesh.given.run(limited);
  await mesh.given.run(limited);
  const first = await worker.acquireOne();

  await suspend(mesh, worker, first, signalWait(0, "go"));
  const other = await worker.acquireOne();
  await signal(mesh, runId, "go", 1);
  const full = await worker.acquire(1);
  await worker.complete(other);
  const second = await worker.acquireOne();

  expect(other.runId).not.toBe(runId);
  expect(full).toEqual([]);
  expect(second.taskId).toBe(first.taskId);
  await worker.complete(second);
});

test("a retry keeps what was recorded, and a fresh one forgets it with the children", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const runId = await mesh.given.run({ tasks: [{ retry: { maxAttempts: 1 } }] });
  const first = await worker.acquireOne();
  await record(mesh, worker, first, step(0, "a", 1));
  const { runId: childId } = await startChild(mesh, worker, first, child.name, 1);
  await worker.fail(first);

  await mesh.runs.retryRun({ runId });
  const kept = await worker.acquireOne();
  const recorded = (await list(mesh, worker, kept)).steps;
  await worker.fail(kept);
  await mesh.runs.retryRun({ runId, fresh: true });
  const fresh = await worker.acquireOne();

  expect(recorded.map((s) => s.name)).toEqual(["a", child.name]);
  expect((await list(mesh, worker, fresh)).steps).toEqual([]);
  expect((await mesh.ended(childId)).state).toBe(Run_State.CANCELLED);
  await worker.complete(fresh);
});

test("schedule-to-start ends with the first start: a task that was woken waits as long as it must", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: [{ timeouts: { scheduleToStart: "300ms" } }] });
  const first = await worker.acquireOne();
  await suspend(mesh, worker, first, signalWait(0, "go"));
  await signal(mesh, runId, "go", 1);
  await mesh.db.rows("", "UPDATE ready SET ready_at = ready_at - interval '1 hour'", []);
  const later = await mesh.given.run({ tasks: [{ handler: "nobody", timeouts: { scheduleToStart: "10ms" } }] });
  await mesh.ended(later);

  expect((await mesh.runs.getRun({ runId })).run!.state).toBe(Run_State.RUNNING);
  await worker.complete(await worker.acquireOne());
});

test("a call that another holds up for too long is UNAVAILABLE, and may be repeated", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  await mesh.given.run();
  const lease = await worker.acquireOne();

  const outcomes = await mesh.db.transaction(async (tx) => {
    await tx.rows("", "SELECT 1 FROM lease WHERE task_id = $1 FOR UPDATE", [lease.taskId]);
    return Promise.allSettled([
      record(mesh, worker, lease, step(0, "a", 1)),
      suspend(mesh, worker, lease, signalWait(1, "go")),
      startChild(mesh, worker, lease, child.name, 2),
      worker.renew([lease]),
    ]);
  });
  await record(mesh, worker, lease, step(0, "a", 1));

  expect(outcomes.map((outcome) => outcome.status === "rejected" && outcome.reason.reason)).toEqual(
    Array.from({ length: 4 }, () => "UNAVAILABLE"),
  );
  await worker.complete(lease);
});

test("a record is listed in pages", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  await mesh.given.run();
  const lease = await worker.acquireOne();
  const large = "x".repeat(250_000);
  for (let at = 0; at < 20; at += 10) {
    await record(mesh, worker, lease, ...Array.from({ length: 10 }, (_, i) => step(at + i, `s-${at + i}`, large)));
  }

  const first = await list(mesh, worker, lease);
  const second = await list(mesh, worker, lease, first.steps.length);

  expect(first.hasMore).toBe(true);
  expect(first.steps.length).toBeGreaterThan(5);
  expect([...first.steps, ...second.steps].map((s) => s.position)).toEqual(Array.from({ length: 20 }, (_, i) => i));
  expect(second.hasMore).toBe(false);
  await worker.complete(lease);
});
