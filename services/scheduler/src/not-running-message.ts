import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  NotRunning_NoWorker_Missing as Missing,
  type NotRunning as NotRunningMessage,
  NotRunningSchema,
} from "@runmesh/contracts/task/v1/task_pb";
import { runIdOf } from "@runmesh/domain/ids";
import type { NotRunning } from "@runmesh/domain/not-running";

/** Writes why something does not run. `taskKey` names the task that is meant where a run is asked about. */
export function writeNotRunning(why: NotRunning, taskKey = ""): NotRunningMessage {
  return create(NotRunningSchema, { taskKey, why: writeWhy(why) });
}

function writeWhy(why: NotRunning) {
  switch (why.why) {
    case "WAITS_FOR_TASKS":
      return { case: "waitsForTasks" as const, value: { taskKeys: [...why.taskKeys], count: why.count } };
    case "WAITS_FOR_TIME":
      return { case: "waitsForTime" as const, value: { untilTime: timestampFromDate(why.until) } };
    case "WAITS_FOR_CONCURRENCY_KEY": {
      const { key, limit, inUse } = why;
      const holders = why.holders.map((taskId) => ({ taskId, runId: runIdOf(taskId) }));
      return { case: "waitsForConcurrencyKey" as const, value: { key, limit, inUse, holders } };
    }
    case "WAITS_FOR_MAX_PARALLEL":
      return { case: "waitsForMaxParallel" as const, value: { limit: why.limit, inUse: why.inUse } };
    case "SUSPENDED": {
      const { signal, childRunId, until } = why;
      const sinceTime = timestampFromDate(why.since);
      const value = { sinceTime, signal, childRunId, ...(until && { untilTime: timestampFromDate(until) }) };
      return { case: "suspended" as const, value };
    }
    case "PAUSED":
      return { case: "paused" as const, value: { sinceTime: timestampFromDate(why.since) } };
    case "NO_WORKER": {
      const { handler, queue, capabilities, since } = why;
      const missing = Missing[why.missing];
      const value = { missing, handler, queue, capabilities: [...capabilities], sinceTime: timestampFromDate(since) };
      return { case: "noWorker" as const, value };
    }
    case "WORKERS_BUSY":
      return { case: "workersBusy" as const, value: writeUse(why) };
    case "CLAIMABLE":
      return { case: "claimable" as const, value: writeUse(why) };
    case "WAITS_FOR_RUN_LIMIT": {
      const { key, limit, inUse, position, holders } = why;
      return { case: "waitsForRunLimit" as const, value: { key, limit, inUse, position, runIds: [...holders] } };
    }
  }
}

const writeUse = ({ workers, slots, slotsUsed, since }: NotRunning & { why: "WORKERS_BUSY" | "CLAIMABLE" }) => ({
  workers,
  slots,
  slotsUsed,
  sinceTime: timestampFromDate(since),
});
