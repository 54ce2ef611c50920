/** Waits, and what ends them, at the same moment: no wake-up is lost, nothing is answered twice. */
import { setTimeout as delay } from "node:timers/promises";
import { StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { LeaseKey, MeshWorker } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";

const COUNT = 60;
const soon = () => delay(Math.random() * 8);
const keyOf = ({ taskId, fence }: LeaseKey) => ({ taskId, fence });

const suspend = (mesh: TestMesh, worker: MeshWorker, lease: LeaseKey, name: string, kind: StepKind, position: number) =>
  mesh.leases.suspendTask({ ...worker.session, ...keyOf(lease), waits: [{ position, kind, name, childPosition: 0 }] });

async function giveLeases(mesh: TestMesh, worker: MeshWorker, definition = {}) {
  const { name: workflow } = await mesh.given.workflow(definition);
  await mesh.runs.startRuns({ runs: Array.from({ length: COUNT }, () => ({ workflow })) });
  const leases = [];
  while (leases.length < COUNT) leases.push(...(await worker.acquire(COUNT, { waitMs: 5_000 })));
  return leases;
}

/** Completes whatever wakes, until as many have ended. */
async function completeWoken(worker: MeshWorker, count: number): Promise<void> {
  for (let done = 0; done < count; ) {
    const woken = await worker.acquire(100, { waitMs: 10_000 });
    if (woken.length === 0) throw new Error(`${count - done} tasks were never woken`);
    for (const task of woken) expect(await worker.complete(task)).toBe("accepted");
    done += woken.length;
  }
}

test("I-12 a signal and the wait for it at the same moment: every task goes on with its signal", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker({ leaseMs: 60_000 });
  const leases = await giveLeases(mesh, worker);
  let answered = 0;

  await Promise.all(
    leases.map(async (lease) => {
      const sent = soon().then(() => mesh.runs.sendSignal({ runId: lease.runId, name: "go" }));
      await soon();
      const { suspended, steps } = await suspend(mesh, worker, lease, "go", StepKind.SIGNAL, 0);
      await sent;
      if (suspended) return;
      expect(steps).toMatchObject([{ done: 1 }]);
      answered++;
      expect(await worker.complete(lease)).toBe("accepted");
    }),
  );
  await completeWoken(worker, COUNT - answered);

  console.info(`${answered} of ${COUNT} were answered at once, the others were woken`);
  expect(await mesh.db.rows("", "SELECT name FROM signal", [])).toEqual([]);
  expect(await mesh.db.rows("", "SELECT state FROM run WHERE state <> 4", [])).toEqual([]);
});

test("C-3 a child's end and its parent's wait at the same moment: every parent goes on", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker({ leaseMs: 60_000 });
  const hand = await mesh.worker({ handlers: ["hand"], leaseMs: 60_000 });
  const child = await mesh.given.workflow({
    tasks: [{ key: "hand", handler: "hand" }],
    output: '{"$ref":"#/tasks/hand/output"}',
  });
  const leases = await giveLeases(mesh, worker, { tasks: [{ concurrency: { key: "shared", limit: 1_000 } }] });
  await Promise.all(
    leases.map((lease) =>
      mesh.runs.startChildRun({ ...worker.session, ...keyOf(lease), position: 0, start: { workflow: child.name } }),
    ),
  );
  const children = [];
  while (children.length < COUNT) children.push(...(await hand.acquire(COUNT, { waitMs: 5_000 })));
  let answered = 0;

  const ending = children.map(async (lease) => {
    await soon();
    const outcome =
      lease.taskId % 2n === 0n
        ? await hand.complete(lease, "7")
        : await hand.fail(lease, { type: "Torn", retryable: false });
    expect(outcome).toBe("accepted");
  });
  const waiting = leases.map(async (lease) => {
    await soon();
    const { suspended } = await suspend(mesh, worker, lease, child.name, StepKind.RESULT, 1);
    if (suspended) return;
    answered++;
    expect(await worker.complete(lease)).toBe("accepted");
  });
  await Promise.all([...ending, ...waiting]);
  await completeWoken(worker, COUNT - answered);

  console.info(`${answered} of ${COUNT} parents found their child ended, the others were woken by its end`);
  const ends = await mesh.db.rows("", "SELECT done, outcome FROM step WHERE kind = 5 AND outcome NOT IN (1, 2)", []);
  expect(ends).toEqual([]);
});

test("I-8 cancels, pauses and resumes while tasks are suspended and woken: nothing is left behind, nothing runs on", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker({ leaseMs: 60_000 });
  const leases = await giveLeases(mesh, worker, { maxParallel: 1, tasks: [{}, {}] });
  const refused = ["RUN_NOT_ACTIVE", "FENCE_STALE", "ILLEGAL_MOVE"];
  const insist = (call: Promise<unknown>) => call.catch((error) => expect(refused).toContain(error.reason));

  await Promise.all(
    leases.map(async (lease, i) => {
      const { runId } = lease;
      await Promise.all([
        soon().then(() => insist(suspend(mesh, worker, lease, "go", StepKind.SIGNAL, 0))),
        soon().then(() => insist(mesh.runs.sendSignal({ runId, name: "go" }))),
        soon().then(async () => {
          if (i % 3 === 0) return insist(mesh.runs.cancelRun({ runId }));
          await insist(mesh.runs.pauseRun({ runId }));
          return soon().then(() => insist(mesh.runs.resumeRun({ runId })));
        }),
      ]);
    }),
  );
  for (let idle = 0; idle < 3; ) {
    const woken = await worker.acquire(100, { waitMs: 300 });
    for (const task of woken) await worker.complete(task);
    for (const lease of leases.splice(0)) await worker.complete(lease);
    idle = woken.length === 0 ? idle + 1 : 0;
  }

  const { runs } = await mesh.runs.listRuns({ pageSize: 1_000 });
  const ended = runs.filter((run) => run.state === Run_State.SUCCEEDED || run.state === Run_State.CANCELLED);
  expect(ended).toHaveLength(COUNT);
  for (const table of ["suspended", "held", "scheduled", "ready", "lease", "slot"]) {
    expect([table, await mesh.db.rows("", `SELECT 1 FROM ${table}`, [])]).toEqual([table, []]);
  }
});
