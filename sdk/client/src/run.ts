import { randomUUID } from "node:crypto";
import type { Client } from "@connectrpc/connect";
import type { Run as RunMessage } from "@runmesh/contracts/run/v1/run_pb";
import type { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError, RunFailedError } from "./errors.ts";
import { type RunEvent, readEvent } from "./run-event.ts";
import { type RunInfo, readJson, readRun, readState } from "./run-info.ts";
import type { RunWaits } from "./run-waits.ts";
import { watchChanges } from "./watch.ts";
import { writeJson } from "./write-json.ts";

export interface WaitOptions {
  readonly signal?: AbortSignal;
}

export interface WatchOptions extends WaitOptions {
  /** Only events after this sequence. Default 0: from the first. */
  readonly after?: number;
}

/** One execution of a workflow. */
export interface Run<O> {
  readonly id: string;
  /** Waits for the end. Rejects with `RunFailedError` when it was not a success. */
  result(options?: WaitOptions): Promise<O>;
  /** Every event of the run from the first, then each as it happens, until the run has ended. */
  watch(options?: WatchOptions): AsyncIterable<RunEvent>;
  /**
   * When it resolves, no completion of the run is accepted and nothing of it starts. The comment says why, to people:
   * at most 1,024 bytes, kept with the run.
   */
  cancel(comment?: string): Promise<void>;
  get(): Promise<RunInfo>;
  /**
   * Sends a signal, any JSON of at most 256 KiB: a handler that waits for one of this name takes the oldest. It may come
   * before anyone waits. `name` has 1 to 128 bytes of [A-Za-z0-9._/-].
   */
  signal(name: string, payload?: unknown): Promise<void>;
}

/** A run as `start` answers it. */
export interface StartedRun<O> extends Run<O> {
  /** False when the idempotency key had started it before. */
  readonly created: boolean;
  readonly version: number;
}

export function createRun<O>(runs: Client<typeof RunService>, waits: RunWaits, runId: bigint): Run<O> {
  return {
    id: String(runId),
    result: (options = {}) => getResult<O>(waits, runId, options),
    watch: (options = {}) => watchEvents(runs, runId, options),
    async cancel(comment = "") {
      await runs.cancelRun({ runId, comment, requestId: randomUUID() });
    },
    get: async () => readRun(await getRun(runs, runId)),
    async signal(name, payload) {
      const value = payload === undefined ? undefined : writeJson(payload, "payload");
      await runs.sendSignal({
        runId,
        name,
        requestId: randomUUID(),
        ...(value && { payload: { case: "valueJson", value } }),
      });
    },
  };
}

/** Reads an id as people write it. */
export function readRunId(id: string): bigint {
  if (/^[1-9]\d{0,18}$/.test(id)) return BigInt(id);
  const description = `a run's id is a positive integer, not ${JSON.stringify(id)}`;
  throw new MeshError("INVALID_FIELD", description, {
    advice: "Pass the id that start answered.",
    violations: [{ field: "run_id", reason: "INVALID_FIELD", description }],
  });
}

async function getResult<O>(waits: RunWaits, runId: bigint, { signal }: WaitOptions): Promise<O> {
  const run = await waits.wait(runId, signal);
  const state = readState(run.state);
  if (state === "SUCCEEDED") return readJson(run.outputJson) as O;
  throw new RunFailedError({
    runId: String(runId),
    state: state as RunFailedError["state"],
    ...(run.failure && {
      taskKey: run.failure.taskKey,
      errorType: run.failure.errorType,
      message: run.failure.message,
    }),
  });
}

/** The history first, since a stream that begins with a snapshot would leave out how it came to be. */
async function* watchEvents(
  runs: Client<typeof RunService>,
  runId: bigint,
  { after = 0, signal }: WatchOptions,
): AsyncGenerator<RunEvent> {
  let afterSequence = BigInt(after);
  for (let hasMore = true; hasMore; ) {
    const page = await runs.listEvents({ runId, afterSequence, pageSize: 1_000 }, signal && { signal });
    for (const event of page.events) {
      afterSequence = event.sequence;
      yield readEvent(event);
    }
    hasMore = page.hasMore;
  }
  for await (const change of watchChanges(runs, { runId, afterSequence, ...(signal && { signal }) })) {
    if (change.kind.case === "event") yield readEvent(change.kind.value);
  }
}

async function getRun(runs: Client<typeof RunService>, runId: bigint, signal?: AbortSignal): Promise<RunMessage> {
  const { run } = await runs.getRun({ runId }, signal && { signal });
  if (run === undefined) throw new Error("GetRun answered no run");
  return run;
}
