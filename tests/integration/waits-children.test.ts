/** Child runs, driven by hand as any worker would: what becomes of them with their parents, and of those with them. */
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { OnFailure } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { endRun } from "@runmesh/store/end-run";
import { startMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { list, ofMs, resultWait, startChild, suspend, text } from "./wait-calls.ts";

test("cancelling a run ends its suspended tasks, and takes its children along but for detached ones", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const runId = await mesh.given.run();
  const lease = await worker.acquireOne();
  const kept = await startChild(mesh, worker, lease, child.name, 0, { detached: true });
  const taken = await startChild(mesh, worker, lease, child.name, 1, { occurrence: 1 });
  await suspend(mesh, worker, lease, { ...resultWait(2, child.name, 1), occurrence: 1 });

  const cancelledAt = performance.now();
  await mesh.runs.cancelRun({ runId });
  const ended = await mesh.ended(taken.runId);

  expect(performance.now() - cancelledAt).toBeLessThan(1_000);
  expect(ended).toMatchObject({ state: Run_State.CANCELLED, parentRunId: runId, parentTaskId: lease.taskId });
  expect((await mesh.runs.getRun({ runId: kept.runId })).run!.state).toBe(Run_State.RUNNING);
  await mesh.runs.cancelRun({ runId: kept.runId });
});

test("a task that is DEAD takes its children along, and a retry starts others in their place", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const once = { retry: { maxAttempts: 1 } };
  const runId = await mesh.given.run({ tasks: [once, { handler: "nobody" }], onFailure: OnFailure.FINISH });
  const lease = await worker.acquireOne();
  const followed = await startChild(mesh, worker, lease, child.name);
  const kept = await startChild(mesh, worker, lease, child.name, 1, { occurrence: 1, detached: true });

  await worker.fail(lease);
  const ended = await mesh.ended(followed.runId);
  const stateThen = (await mesh.runs.getRun({ runId })).run!.state;
  await mesh.runs.cancelRun({ runId });
  await mesh.runs.retryRun({ runId });
  const retried = await worker.acquireOne();
  const { steps } = await list(mesh, worker, retried);
  const other = await startChild(mesh, worker, retried, child.name);

  expect([ended.state, stateThen]).toEqual([Run_State.CANCELLED, Run_State.RUNNING]);
  expect((await mesh.runs.getRun({ runId: kept.runId })).run!.state).toBe(Run_State.RUNNING);
  expect(steps).toMatchObject([
    { childRunId: followed.runId, renew: true },
    { childRunId: kept.runId, renew: false },
  ]);
  expect(other).toMatchObject({ created: true });
  await mesh.runs.cancelRun({ runId });
  await mesh.ended(other.runId);
  await mesh.runs.cancelRun({ runId: kept.runId });
});

test("children of a task that succeeded go on when another fails the run", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const once = { retry: { maxAttempts: 1 } };
  const runId = await mesh.given.run({ tasks: [{ ...once, priority: 1 }, once] });
  const good = await worker.acquireOne();
  const bad = await worker.acquireOne();
  const left = await startChild(mesh, worker, good, child.name);
  const taken = await startChild(mesh, worker, bad, child.name);
  await worker.complete(good);

  await worker.fail(bad);
  const ended = await mesh.ended(taken.runId);

  expect(ended.state).toBe(Run_State.CANCELLED);
  expect((await mesh.runs.getRun({ runId })).run!.state).toBe(Run_State.FAILED);
  expect((await mesh.runs.getRun({ runId: left.runId })).run!.state).toBe(Run_State.RUNNING);
  await mesh.runs.cancelRun({ runId: left.runId });
});

test("a child stays while its parent's task may be opened again, and is cancelled when it was not", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  await mesh.given.run({ tasks: [{ retry: { maxAttempts: 1 } }] });
  const lease = await worker.acquireOne();
  const { runId } = await startChild(mesh, worker, lease, child.name, 0, { detached: true });
  await worker.fail(lease);
  const deps = { db: mesh.db, definitions: new DefinitionCache(mesh.db, () => {}) };
  const cancel = () =>
    endRun(deps, { tenantId: 1, runId, as: "CANCELLED", principal: "", onlyStray: true }).then(
      (outcome) => outcome.kind === "ended" && outcome.moved,
    );
  await mesh.db.rows("", "UPDATE run SET detached = false WHERE id = $1", [runId]);

  const meanwhile = await mesh.db.transaction(async (tx) => {
    await tx.rows("", "UPDATE task SET state = 0 WHERE id = $1", [lease.taskId]);
    return cancel();
  });
  const opened = await cancel();
  await mesh.db.rows("", "UPDATE task SET state = 7 WHERE id = $1", [lease.taskId]);
  const dead = await cancel();

  expect([meanwhile, opened, dead]).toEqual([false, false, true]);
});

test("a child's end wakes its parent with what it answered, whether it came before the wait or after", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const hand = await mesh.worker({ handlers: ["hand"] });
  const child = await mesh.given.workflow({
    tasks: [{ key: "hand", handler: "hand" }],
    output: '{"got": {"$ref": "#/tasks/hand/output"}}',
  });
  await mesh.given.run();
  const lease = await worker.acquireOne();
  const first = await startChild(mesh, worker, lease, child.name);
  await hand.complete(await hand.acquireOne(), "1");
  await mesh.ended(first.runId);

  const before = await suspend(mesh, worker, lease, resultWait(1, child.name));
  await startChild(mesh, worker, lease, child.name, 2, { occurrence: 1 });
  const after = await suspend(mesh, worker, lease, { ...resultWait(3, child.name, 2), occurrence: 1 });
  await hand.complete(await hand.acquireOne(), "2");
  const woken = await worker.acquireOne();
  const { steps } = await list(mesh, worker, woken);

  expect([before.suspended, after.suspended]).toEqual([false, true]);
  expect(text(before.steps[0]!.valueJson)).toBe('{"got":1}');
  expect(text(steps[3]!.valueJson)).toBe('{"got":2}');
  await worker.complete(woken);
});

test("a second pass finds its child, and a child that failed is started anew by the next attempt", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const hand = await mesh.worker({ handlers: ["hand"] });
  const child = await mesh.given.workflow({ tasks: [{ key: "hand", handler: "hand", retry: { maxAttempts: 1 } }] });
  await mesh.given.run({ tasks: [{ retry: { initialInterval: "10ms", jitter: 0 } }] });
  const first = await worker.acquireOne();
  const started = await startChild(mesh, worker, first, child.name);
  const again = await startChild(mesh, worker, first, child.name);
  await suspend(mesh, worker, first, resultWait(1, child.name));
  await hand.fail(await hand.acquireOne(), { type: "Torn", message: "apart", retryable: false });
  const second = await worker.acquireOne();
  const failed = (await list(mesh, worker, second)).steps;

  await worker.fail(second, undefined, { forgetSteps: [1] });
  const third = await worker.acquireOne();
  const renewed = (await list(mesh, worker, third)).steps;
  const other = await startChild(mesh, worker, third, child.name);
  const stays = await startChild(mesh, worker, third, child.name);

  expect(again).toMatchObject({ runId: started.runId, created: false });
  expect(failed[1]).toMatchObject({ error: { type: "Torn", message: "apart", state: "FAILED", taskKey: "hand" } });
  expect(renewed).toMatchObject([{ position: 0, renew: true, childRunId: started.runId }]);
  expect(other.runId).not.toBe(started.runId);
  expect(stays).toMatchObject({ runId: other.runId, created: false });
  await hand.complete(await hand.acquireOne());
  await worker.complete(third);
});

test("a child whose wait timed out before it was cancelled is started anew by a retry of its parent", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const child = await mesh.given.workflow({ tasks: [{ handler: "nobody" }] });
  const runId = await mesh.given.run();
  const first = await worker.acquireOne();
  const { runId: childId } = await startChild(mesh, worker, first, child.name);
  await suspend(mesh, worker, first, { ...resultWait(1, child.name), duration: ofMs(1_000) });
  await worker.acquireOne();
  await mesh.runs.cancelRun({ runId });
  await mesh.ended(childId);

  await mesh.runs.retryRun({ runId });
  const retried = await worker.acquireOne();
  const { steps } = await list(mesh, worker, retried);

  expect(steps).toMatchObject([
    { position: 0, childRunId: childId, renew: true },
    { position: 1, childRunId: childId, timedOut: true },
  ]);
  await worker.complete(retried);
});
