import { setTimeout as delay } from "node:timers/promises";
import { defineTask, MeshError } from "@runmesh/client";
import type { TestMesh } from "@runmesh/testing/mesh";
import { z } from "zod";

type Runs = TestMesh["runs"];

/** The long form is for `npm run test:long`. */
export const IS_LONG = process.env.RUNMESH_TEST_LONG === "1";

/** Three tasks one after another; a failure, a time-out or a loss after the start would end the run. */
export const CHAIN = ["a", "b", "c"].map((key, i, keys) => ({
  key,
  retry: { maxAttempts: 1, maxLost: 0 },
  dependsOn: keys.slice(i - 1, i),
}));

/** A handler that takes some milliseconds, and ends early when it is told to. */
export const work = defineTask({ name: "work", input: z.any(), output: z.any() }).handle((_, { fence, signal }) =>
  delay(20, String(fence), { signal }),
);

const PATIENCE_MS = 150_000;

/** Repeats a call until it is answered, as a client that must know does; what is refused for good is thrown. */
export async function insist<T>(call: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + PATIENCE_MS; ; ) {
    try {
      return await call();
    } catch (error) {
      const isOutage = error instanceof MeshError && ["UNAVAILABLE", "OVERLOADED", "TIMED_OUT"].includes(error.reason);
      if (!isOutage || performance.now() > until) throw error;
      await delay(100);
    }
  }
}

/** Starts runs one after another under keys of their own until told to stop; answers all of them. */
export async function keepStarting(runs: Runs, workflow: string, name: string, signal: AbortSignal) {
  const runIds: bigint[] = [];
  while (!signal.aborted) {
    const idempotencyKey = `${name}-${runIds.length}`;
    const { runId } = await insist(() => runs.startRun({ workflow, idempotencyKey }, { timeoutMs: 10_000 }));
    runIds.push(runId);
    await delay(10);
  }
  return runIds;
}
