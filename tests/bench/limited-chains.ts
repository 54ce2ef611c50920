/** Chains of steps that differ in their limits alone, none of which ever stands in the way. All times are milliseconds. */
import { randomUUID } from "node:crypto";
import { type Builder, defineWorkflow, type Mesh, type Ref, type StepOptions, type Workflow } from "@runmesh/client";
import { z } from "zod";
import { step } from "./workloads.ts";

export const LIMITED_STEPS = 10;

const input = z.object({ n: z.number(), key: z.string() });

type Input = { readonly n: number; readonly key: string };
interface Limits {
  readonly maxParallel?: number;
  readonly keyOfRun?: boolean;
  readonly keyOfTask?: "own" | "shared";
}

const chainUnder = (name: string, { maxParallel, keyOfRun, keyOfTask }: Limits): Workflow<Input, { n: number }> =>
  defineWorkflow({
    name: `bench.limits.${name}`,
    input,
    ...(maxParallel !== undefined && { maxParallel }),
    ...(keyOfRun && { concurrency: { key: (of: Ref<Input>) => of.key, limit: 1 } }),
    build(w: Builder<Input>) {
      let options: StepOptions = {};
      if (keyOfTask === "own") options = { concurrency: { key: w.input.key, limit: 1 } };
      if (keyOfTask === "shared") options = { concurrency: { key: "bench", limit: 1_000 } };
      let last = w.task("step-0", step, { n: w.input.n }, options);
      for (let i = 1; i < LIMITED_STEPS; i++) last = w.task(`step-${i}`, step, { n: last.output.n }, options);
      return last.output;
    },
  });

/** The first is what the others are compared with. */
const LIMITED_CHAINS = {
  "no limit": chainUnder("none", {}),
  "a key of its own for each run's tasks": chainUnder("own-key", { keyOfTask: "own" }),
  "a key that all tasks share": chainUnder("shared-key", { keyOfTask: "shared" }),
  max_parallel: chainUnder("max-parallel", { maxParallel: 5 }),
  "a key of its own for each run": chainUnder("key-of-run", { keyOfRun: true }),
};
export type ChainKind = keyof typeof LIMITED_CHAINS;
const KINDS = Object.keys(LIMITED_CHAINS) as ChainKind[];

export async function registerLimitedChains(mesh: Mesh): Promise<void> {
  for (const workflow of Object.values(LIMITED_CHAINS)) await mesh.register(workflow);
}

export interface LimitLoad {
  readonly runs: number;
  readonly inFlight: number;
  /** All of them, where it is not said. */
  readonly kinds?: readonly ChainKind[];
}

/** So many runs of each kind, so many at a time, from before the start until the result is here; the kinds in turn. */
export async function measureLimitedChains(
  mesh: Mesh,
  { runs, inFlight, kinds = KINDS }: LimitLoad,
): Promise<Record<ChainKind, number[]>> {
  const times = Object.fromEntries(KINDS.map((kind) => [kind, []])) as unknown as Record<ChainKind, number[]>;
  // What else the machine does meets all kinds alike where they take turns often.
  for (let done = 0; done < runs; done += inFlight) {
    for (const kind of kinds) {
      await Promise.all(
        Array.from({ length: inFlight }, async (_, i) => {
          times[kind].push(await timeOne(mesh, kind, { n: done + i, key: randomUUID() }));
        }),
      );
    }
  }
  return times;
}

async function timeOne(mesh: Mesh, kind: ChainKind, given: Input): Promise<number> {
  const startedAt = performance.now();
  await (await mesh.start(LIMITED_CHAINS[kind], given, { idempotencyKey: given.key })).result();
  return performance.now() - startedAt;
}
