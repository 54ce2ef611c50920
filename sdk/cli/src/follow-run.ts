/**
 * 1. Every change after the first snapshot is told once, in order, whatever number of streams it takes.
 * 2. It ends with the run, or with the signal; a stream that breaks or falls silent is replaced, a bounded number of
 *    times without news in between. Where nothing was ever heard, the first failure ends it: the URL may be wrong.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Mesh } from "@runmesh/client";
import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import { type Run, Run_State, type RunChange } from "@runmesh/contracts/run/v1/run_pb";

/** The server says something each 10 s: nothing for longer, and the stream is dead. */
const SILENCE_MS = 25_000;
const MAX_RESTARTS = 10;

export interface Follow {
  readonly runId: bigint;
  /** Only events after this sequence; 0 begins with a snapshot. */
  readonly afterSequence?: bigint;
  readonly signal: AbortSignal;
  onSnapshot?(run: Run): void;
  onEvent?(event: Event): void;
}

/** Waits for the run's end and answers the run as it ended. */
export async function followRun(mesh: Mesh, follow: Follow): Promise<Run> {
  const { backoffMs, isTransient } = await import("@runmesh/client/internal");
  const { MeshError } = await import("@runmesh/client");
  const { runId, signal } = follow;
  let after = follow.afterSequence ?? 0n;

  function tell(change: RunChange): void {
    if (change.kind.case === "snapshot") follow.onSnapshot?.(change.kind.value);
    else if (change.kind.case === "event" && change.sequence > after) follow.onEvent?.(change.kind.value);
    if (change.sequence > after) after = change.sequence;
  }

  let heard = false;
  for (let restarts = 0; ; ) {
    let failure: InstanceType<typeof MeshError> | undefined;
    try {
      for await (const change of readStream(mesh, runId, after, signal)) {
        heard = true;
        restarts = 0;
        tell(change);
      }
      const { run } = await mesh.runs.getRun({ runId }, { signal });
      if (run !== undefined && hasEnded(run) && run.sequence <= after) return run;
    } catch (error) {
      const resumable = error instanceof MeshError && (isTransient(error) || RESUMABLE.has(error.reason));
      if (signal.aborted || !resumable || !heard || restarts >= MAX_RESTARTS) throw error;
      failure = error;
    }
    await delay(backoffMs(++restarts, failure), undefined, { signal });
  }
}

const RESUMABLE = new Set(["SLOW_CONSUMER", "CANCELLED"]);

function hasEnded(run: Run): boolean {
  return ENDED.has(run.state);
}

const ENDED = new Set<Run_State>([Run_State.SUCCEEDED, Run_State.FAILED, Run_State.CANCELLED, Run_State.TIMED_OUT]);

/** One stream. One that says nothing for too long is cut off, which reads as CANCELLED. */
async function* readStream(mesh: Mesh, runId: bigint, afterSequence: bigint, signal: AbortSignal) {
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const options = { signal: AbortSignal.any([signal, silence.signal]) };
    for await (const { change } of mesh.runs.watchRun({ runId, afterSequence }, options)) {
      timer.refresh();
      if (change !== undefined) yield change;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}
