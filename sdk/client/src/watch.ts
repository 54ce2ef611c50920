/**
 * 1. A watcher sees every change after the sequence it asked for, once, in order, whatever number of streams it took.
 * 2. It ends after the run's end, or when its signal aborts; a stream that breaks or falls silent is replaced.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import type { RunChange } from "@runmesh/contracts/run/v1/run_pb";
import type { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "./errors.ts";
import { hasEnded, readState } from "./run-info.ts";
import { backoffMs, isTransient } from "./service-client.ts";

/** The server says something each 10 s: nothing for longer, and the stream is dead. */
const SILENCE_MS = 25_000;

export interface Watch {
  readonly runId: bigint;
  /** 0 begins with a snapshot. */
  readonly afterSequence: bigint;
  readonly signal?: AbortSignal;
}

/** Snapshot and events of a run until it has ended; no heartbeats. */
export async function* watchChanges(runs: Client<typeof RunService>, watch: Watch): AsyncGenerator<RunChange> {
  let after = watch.afterSequence;
  for (let failures = 0; ; ) {
    let pause: MeshError | undefined;
    try {
      for await (const change of stream(runs, watch, after)) {
        failures = 0;
        if (change.kind.case === "heartbeat") continue;
        if (change.kind.case === "event" && change.sequence <= after) continue;
        after = change.sequence;
        yield change;
        if (isLast(change)) return;
      }
      if (await hasEndedAt(runs, watch, after)) return;
    } catch (thrown) {
      watch.signal?.throwIfAborted();
      if (!(thrown instanceof MeshError) || !isResumable(thrown)) throw thrown;
      after = thrown.lastSequence ?? after;
      pause = thrown;
    }
    await delay(backoffMs(++failures, pause), undefined, watch.signal && { signal: watch.signal });
  }
}

/** One stream. Failing with UNAVAILABLE when nothing came for too long. */
async function* stream(runs: Client<typeof RunService>, watch: Watch, afterSequence: bigint) {
  const silent = new AbortController();
  const signal = watch.signal ? AbortSignal.any([watch.signal, silent.signal]) : silent.signal;
  const timer = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    for await (const { change } of runs.watchRun({ runId: watch.runId, afterSequence }, { signal })) {
      timer.refresh();
      if (change !== undefined) yield change;
    }
  } catch (cause) {
    if (!silent.signal.aborted) throw cause;
    throw new MeshError("UNAVAILABLE", `WatchRun said nothing for ${SILENCE_MS / 1_000} s`, { cause });
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

/** A stream may end before the last change when its server goes down, or at once when there is nothing more to tell. */
async function hasEndedAt(runs: Client<typeof RunService>, watch: Watch, after: bigint): Promise<boolean> {
  const { run } = await runs.getRun({ runId: watch.runId }, watch.signal && { signal: watch.signal });
  return run !== undefined && hasEnded(readState(run.state)) && run.sequence <= after;
}

function isLast(change: RunChange): boolean {
  const run = change.kind.case === "snapshot" ? change.kind.value : change.run;
  return run !== undefined && hasEnded(readState(run.state));
}

/** CANCELLED here is the server's or a proxy's doing: the caller's own was seen before. */
function isResumable(error: MeshError): boolean {
  return isTransient(error) || error.reason === "SLOW_CONSUMER" || error.reason === "CANCELLED";
}
