/**
 * 1. Whatever number of streams it takes, what the watcher knows is what the callers were told: a stream that breaks or
 *    falls silent is replaced by one that says what is known, and only what moved since is told.
 * 2. It ends with the signal. Where nothing was ever heard, the first failure ends it: the URL may be wrong.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Mesh } from "@runmesh/client";
import type { Run, RunLeft, RunsChange } from "@runmesh/contracts/run/v1/run_pb";
import type { readFilter } from "./filter-options.ts";

/** The server says something each 10 s: nothing for longer, and the stream is dead. */
const SILENCE_MS = 25_000;
const MAX_RESTARTS = 10;

export interface FollowRuns {
  readonly filter: ReturnType<typeof readFilter>;
  /** The newest so many are watched. */
  readonly limit: number;
  readonly signal: AbortSignal;
  onRun(run: Run): void;
  onLeft(left: RunLeft): void;
}

export async function followRuns(mesh: Mesh, follow: FollowRuns): Promise<never> {
  const { backoffMs, isTransient } = await import("@runmesh/client/internal");
  const { MeshError } = await import("@runmesh/client");
  const { signal } = follow;
  const known = new Map<bigint, bigint>();

  function tell({ kind }: RunsChange): void {
    const runs = kind.case === "snapshot" ? kind.value.runs.toReversed() : kind.case === "run" ? [kind.value] : [];
    for (const run of runs) {
      follow.onRun(run);
      known.set(run.id, run.sequence);
    }
    if (kind.case !== "left") return;
    follow.onLeft(kind.value);
    known.delete(kind.value.runId);
  }

  let heard = false;
  for (let restarts = 0; ; ) {
    let failure: InstanceType<typeof MeshError> | undefined;
    try {
      for await (const change of readStream(mesh, follow, known)) {
        heard = true;
        restarts = 0;
        tell(change);
      }
    } catch (error) {
      const resumable = error instanceof MeshError && (isTransient(error) || RESUMABLE.has(error.reason));
      if (signal.aborted || !resumable || !heard || restarts >= MAX_RESTARTS) throw error;
      failure = error;
    }
    await delay(backoffMs(++restarts, failure), undefined, { signal });
  }
}

const RESUMABLE = new Set(["SLOW_CONSUMER", "CANCELLED"]);

/** One stream. One that says nothing for too long is cut off, which reads as CANCELLED. */
async function* readStream(mesh: Mesh, { filter, limit, signal }: FollowRuns, knownRuns: ReadonlyMap<bigint, bigint>) {
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const known = [...knownRuns].map(([runId, sequence]) => ({ runId, sequence }));
  try {
    const options = { signal: AbortSignal.any([signal, silence.signal]) };
    for await (const { change } of mesh.runs.watchRuns({ filter, limit, known }, options)) {
      timer.refresh();
      if (change !== undefined) yield change;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}
