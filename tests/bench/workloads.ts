/** The workflows that are measured, and what a client does with them. All times are milliseconds. */
import { randomUUID } from "node:crypto";
import { defineTask, defineWorkflow, type Mesh, type Workflow } from "@runmesh/client";
import { z } from "zod";

export interface SubmitLoad {
  readonly count: number;
  readonly batch: number;
  readonly inFlight: number;
}

export interface ChainLoad {
  readonly runs: number;
  readonly inFlight: number;
}

export const item = z.object({ n: z.number() });

/** One small object in, one out, checked on both sides: what a task costs is the mesh's part alone. */
export const step = defineTask({ name: "bench.step", input: item, output: item });

export const single = defineWorkflow({
  name: "bench.single",
  input: item,
  build: (w) => w.task("only", step, { n: w.input.n }).output,
});

export const CHAIN_STEPS = 3;

export const chain = defineWorkflow({
  name: "bench.chain",
  input: item,
  build(w) {
    const first = w.task("first", step, { n: w.input.n });
    const second = w.task("second", step, { n: first.output.n });
    return w.task("third", step, { n: second.output.n }).output;
  },
});

const fanOuts = new Map<number, Workflow<{ n: number }, { n: number }>>();

/** A root, `width` tasks after it, and one that joins them. */
export function fanOut(width: number): Workflow<{ n: number }, { n: number }> {
  let workflow = fanOuts.get(width);
  if (workflow === undefined) {
    workflow = defineWorkflow({
      name: `bench.fan-out-${width}`,
      input: item,
      build(w) {
        const root = w.task("root", step, { n: w.input.n });
        const middle = Array.from({ length: width }, (_, i) =>
          w.task(`middle-${i}`, step, { n: i }, { after: [root] }),
        );
        return w.task("join", step, { n: w.input.n }, { after: middle }).output;
      },
    });
    fanOuts.set(width, workflow);
  }
  return workflow;
}

/** Starts single-task runs, each under an idempotency key, in batches. */
export async function submit(mesh: Mesh, { count, batch, inFlight }: SubmitLoad): Promise<void> {
  const key = randomUUID();
  let next = 0;
  await atOnce(inFlight, async () => {
    while (next < count) {
      const from = next;
      next = Math.min(count, from + batch);
      const items = Array.from({ length: next - from }, (_, i) => ({
        input: { n: from + i },
        idempotencyKey: `${key}-${from + i}`,
      }));
      for (const result of await mesh.startMany(single, items)) if (!result.ok) throw result.error;
    }
  });
}

/** Starts chains and waits for each one's result, so many at a time. */
export async function runChains(mesh: Mesh, { runs, inFlight }: ChainLoad): Promise<void> {
  const key = randomUUID();
  let next = 0;
  await atOnce(inFlight, async () => {
    while (next < runs) {
      const n = next++;
      await (await mesh.start(chain, { n }, { idempotencyKey: `${key}-${n}` })).result();
    }
  });
}

export async function runFanOut(mesh: Mesh, width: number): Promise<number> {
  const startedAt = performance.now();
  await (await mesh.start(fanOut(width), { n: 0 }, { idempotencyKey: randomUUID() })).result();
  return performance.now() - startedAt;
}

/** One run at a time: from before its start until its result is here. */
export async function measureLatency(mesh: Mesh, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let n = 0; n < count; n++) {
    const startedAt = performance.now();
    await (await mesh.start(single, { n }, { idempotencyKey: randomUUID() })).result();
    times.push(performance.now() - startedAt);
  }
  return times;
}

async function atOnce(count: number, work: () => Promise<void>): Promise<void> {
  await Promise.all(Array.from({ length: count }, work));
}
