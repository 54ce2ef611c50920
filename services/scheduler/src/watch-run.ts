import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { HeartbeatSchema } from "@runmesh/contracts/run/v1/run_pb";
import type { WatchRunResponseSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { RUN_STATES } from "@runmesh/domain/states";
import { type Wakeups, waitForWakeup } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { findRun, type RunRow } from "@runmesh/store/runs";
import type { HistoryReader } from "./history-reader.ts";
import { writeWholeRun } from "./run-message.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly history: HistoryReader;
  readonly wakeups: Wakeups;
}

type Message = MessageInitShape<typeof WatchRunResponseSchema>;

const PAGE = 500;
const HEARTBEAT_MS = 10_000;
/** Hints of other processes do not come here, so the run is looked at this often. */
const POLL_MS = 500;
const MAX_BEHIND = 1_000;
/** A reader that did not take a message for so long is slow, not busy. */
const MAX_STALL_MS = 10_000;

/**
 * A snapshot, or what came after a sequence, then each change until the run has ended. Changes are read from the
 * run's history, so a watcher holds no more than a page of them, and one that resumes misses none.
 */
export async function* watchRun(
  deps: Deps,
  p: { tenantId: number; runId: bigint; afterSequence: number },
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const { tenantId, runId } = p;
  let sequence = p.afterSequence;
  let row = await getRun(deps.db, tenantId, runId);
  if (sequence === 0) {
    sequence = row.sequence;
    const run = await writeWholeRun(deps, tenantId, row, false);
    yield {
      change: { kind: { case: "snapshot", value: run }, sequence: BigInt(sequence), ...(isEnded(row) && { run }) },
    };
  }
  // Reading the history of a large run costs more, so changes of it are gathered longer.
  const restMs = Math.min(250, Math.max(5, row.task_count / 20));
  let beatAt = Date.now() + HEARTBEAT_MS;
  while (!signal.aborted) {
    const readAt = Date.now();
    if (row.sequence > sequence) {
      for await (const message of changes(deps, p, sequence)) {
        const givenAt = Date.now();
        yield message;
        sequence = Number(message.change!.sequence);
        await refuseSlow(deps.db, p, sequence, Date.now() - givenAt);
      }
      beatAt = Date.now() + HEARTBEAT_MS;
    }
    if (isEnded(row) && sequence >= row.sequence) return;
    await waitForWakeup(deps.wakeups, [`run:${runId}`], Math.min(POLL_MS, Math.max(1, beatAt - Date.now())), signal);
    const early = restMs - (Date.now() - readAt);
    if (early > 0) await waitForWakeup(deps.wakeups, [], early, signal);
    if (signal.aborted) return;
    row = await getRun(deps.db, tenantId, runId);
    if (row.sequence <= sequence && Date.now() >= beatAt) {
      beatAt = Date.now() + HEARTBEAT_MS;
      const value = create(HeartbeatSchema, { time: timestampNow() });
      yield { change: { kind: { case: "heartbeat", value }, sequence: BigInt(sequence) } };
    }
  }
}

async function* changes(
  deps: Deps,
  { tenantId, runId }: { tenantId: number; runId: bigint },
  afterSequence: number,
): AsyncGenerator<Message> {
  let after = afterSequence;
  for (;;) {
    const events = await deps.history.list({ tenantId, runId, afterSequence: after, limit: PAGE });
    for (const event of events) {
      after = Number(event.sequence);
      const change = { kind: { case: "event" as const, value: event }, sequence: event.sequence };
      if (!ENDS.has(event.type)) {
        yield { change };
        continue;
      }
      const run = await writeWholeRun(deps, tenantId, await getRun(deps.db, tenantId, runId), false);
      yield { change: { ...change, run } };
    }
    if (events.length < PAGE) return;
  }
}

const ENDS: ReadonlySet<EventType> = new Set([
  EventType.RUN_SUCCEEDED,
  EventType.RUN_FAILED,
  EventType.RUN_CANCELLED,
  EventType.RUN_TIMED_OUT,
]);

async function refuseSlow(db: Db, p: { tenantId: number; runId: bigint }, sequence: number, stalledMs: number) {
  if (stalledMs < MAX_STALL_MS) return;
  const { sequence: newest } = await getRun(db, p.tenantId, p.runId);
  if (newest - sequence <= MAX_BEHIND) return;
  throw new MeshError("SLOW_CONSUMER", `the watcher is ${newest - sequence} changes behind`, {
    lastSequence: BigInt(sequence),
  });
}

const isEnded = (row: RunRow): boolean => row.state >= RUN_STATES.SUCCEEDED;

async function getRun(db: Db, tenantId: number, runId: bigint): Promise<RunRow> {
  const row = await findRun(db, { tenantId, runId });
  if (row === undefined) throw new MeshError("NOT_FOUND", `no run ${runId}`);
  return row;
}
