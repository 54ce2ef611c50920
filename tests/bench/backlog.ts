/** What may lie around while other work is done: none of it can run on the bench's worker. */
import { defineTask, defineWorkflow, type Mesh } from "@runmesh/client";
import { item, single, step } from "./workloads.ts";

export interface Backlog {
  readonly blocked: number;
  readonly future: number;
  readonly ready: number;
}

const WIDTH = 1_000;
const BATCH = 1_000;
const DAY_MS = 86_400_000;

const nobody = defineTask({ name: "bench.nobody", input: item, output: item });

const stuckReady = defineWorkflow({
  name: "bench.stuck-ready",
  input: item,
  build(w) {
    const tasks = Array.from({ length: WIDTH }, (_, n) => w.task(`ready-${n}`, nobody, { n }));
    return tasks[0]!.output;
  },
});

const stuckBlocked = defineWorkflow({
  name: "bench.stuck-blocked",
  input: item,
  build(w) {
    const root = w.task("root", nobody, { n: 0 });
    const tasks = Array.from({ length: WIDTH }, (_, n) => w.task(`blocked-${n}`, step, { n }, { after: [root] }));
    return tasks[0]!.output;
  },
});

/** Independent tasks that the worker can run: how a long history is made in few runs. */
const wide = defineWorkflow({
  name: "bench.wide",
  input: item,
  build(w) {
    const tasks = Array.from({ length: WIDTH }, (_, n) => w.task(`task-${n}`, step, { n }));
    return tasks[0]!.output;
  },
});

/** Starts runs whose tasks no connected worker can run: blocked ones, ones of tomorrow, and ready ones. */
export async function fill(mesh: Mesh, { blocked, future, ready }: Backlog): Promise<void> {
  await startWide(mesh, stuckBlocked, blocked);
  await startWide(mesh, stuckReady, ready);
  const dueTime = new Date(Date.now() + DAY_MS);
  for (let from = 0; from < future; from += BATCH) {
    const items = Array.from({ length: Math.min(BATCH, future - from) }, (_, i) => ({
      input: { n: from + i },
      dueTime,
    }));
    assertStarted(await mesh.startMany(single, items));
  }
}

/** Starts so many tasks that the worker can run, in runs of 1,000. */
export const startTasks = (mesh: Mesh, count: number): Promise<void> => startWide(mesh, wide, count);

async function startWide(mesh: Mesh, workflow: typeof wide, tasks: number): Promise<void> {
  for (let n = 0; n < Math.ceil(tasks / WIDTH); n += 10) {
    const runs = Math.min(10, Math.ceil(tasks / WIDTH) - n);
    assertStarted(
      await mesh.startMany(
        workflow,
        Array.from({ length: runs }, () => ({ input: { n } })),
      ),
    );
  }
}

function assertStarted(results: readonly ({ ok: true } | { ok: false; error: Error })[]): void {
  for (const result of results) if (!result.ok) throw result.error;
}
