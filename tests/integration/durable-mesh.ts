/** A mesh with a workflow of one task, whose handler a test gives, and a workflow for its children. */
import { setTimeout as delay } from "node:timers/promises";
import {
  connect,
  defineTask,
  defineWorkflow,
  type Handler,
  type Mesh,
  type StartedRun,
  type TaskContext,
} from "@runmesh/client";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { createWorker, type WorkerOptions } from "@runmesh/worker";
import { z } from "zod";

export const task = defineTask({
  name: "durable",
  input: z.any(),
  output: z.any(),
  retry: { maxAttempts: 3, initialInterval: "20ms", jitter: 0 },
});
export const workflow = defineWorkflow({
  name: "durable",
  input: z.any(),
  build: (w) => w.task("durable", task, w.input).output,
});

export type Run = (input: never, ctx: TaskContext) => unknown;

export interface Started extends AsyncDisposable {
  readonly client: Mesh;
  /** A worker that runs the task by this; stopped with the mesh. */
  work(run: Run, options?: Partial<WorkerOptions>): Promise<AsyncDisposable>;
  readonly mesh: TestMesh;
}

export async function start(): Promise<Started> {
  const mesh = await startMesh();
  const client = connect({ url: mesh.url });
  const workers: (() => Promise<void>)[] = [];
  return {
    mesh,
    client,
    async work(run, options = {}) {
      const handlers: Handler[] = [task.handle(run as never)];
      const worker = createWorker({ url: mesh.url, handlers, log: () => {}, gracefulStopMs: 500, ...options });
      workers.push(() => worker.stop());
      await worker.start();
      return { [Symbol.asyncDispose]: () => worker.stop() };
    },
    async [Symbol.asyncDispose]() {
      for (const stop of workers) await stop();
      client.close();
      await mesh[Symbol.asyncDispose]();
    },
  };
}

export const suspended = async ({ mesh }: Started, count = 1) => {
  for (;;) {
    const { found } = await mesh.db.one<{ found: number }>("", "SELECT count(*)::int AS found FROM suspended", []);
    if (found >= count) return;
    await delay(20);
  }
};
export const waitsForChild = async ({ mesh }: Started) => {
  while ((await mesh.db.rows("", "SELECT 1 FROM suspended WHERE waits_for = 3", [])).length === 0) await delay(20);
};
/** Makes time pass for what sleeps. */
export const passTime = ({ mesh }: Started) =>
  mesh.db.transaction(async (tx) => {
    await tx.rows("", "UPDATE step SET due_at = clock_timestamp() WHERE done IS NULL AND due_at IS NOT NULL", []);
    await tx.rows("", "UPDATE suspended SET wake_at = clock_timestamp() WHERE wake_at IS NOT NULL", []);
  });
export const outcomes = async ({ mesh }: Started, run: StartedRun<unknown>) => {
  const rows = await mesh.db.rows<{ outcome: number }>(
    "",
    "SELECT outcome FROM attempt WHERE task_id >> 20 = $1 ORDER BY fence",
    [run.id],
  );
  return rows.map((row) => row.outcome);
};

export const childTask = defineTask({
  name: "child",
  input: z.object({ n: z.number() }),
  output: z.object({ twice: z.number() }),
  retry: { maxAttempts: 1 },
});
export const child = defineWorkflow({
  name: "child",
  input: z.object({ n: z.number() }),
  build: (w) => ({ doubled: w.task("child", childTask, { n: w.input.n }).output.twice }),
});
