import type { Timestamp } from "@bufbuild/protobuf/wkt";
import {
  NotRunning_NoWorker_Missing as Missing,
  type NotRunning,
  type NotRunning_NoWorker as NoWorker,
  type NotRunning_Suspended as Suspended,
} from "@runmesh/contracts/task/v1/task_pb";
import { plural } from "./plural.ts";
import { formatTime } from "./times.ts";

/** Why a task or a run does not run, as a sentence for people; "" where it runs or has ended. */
export function formatNotRunning(notRunning: NotRunning | undefined): string {
  if (notRunning === undefined) return "";
  const why = formatWhy(notRunning);
  return notRunning.taskKey === "" ? why : `task ${notRunning.taskKey}: ${why}`;
}

function formatWhy({ why }: NotRunning): string {
  switch (why.case) {
    case "waitsForTasks": {
      const { taskKeys, count } = why.value;
      return `waits for ${nameSome(taskKeys, count)}`;
    }
    case "waitsForTime":
      return `waits for its time${until(why.value.untilTime)}`;
    case "waitsForConcurrencyKey": {
      const { key, limit, inUse, holders } = why.value;
      const runs = [...new Set(holders.map((holder) => String(holder.runId)))];
      return `waits for the key ${key}: ${inUse} of ${limit} held by ${runs.length > 1 ? "runs" : "run"} ${some(runs)}`;
    }
    case "waitsForMaxParallel":
      return `waits for max_parallel: ${why.value.inUse} of ${why.value.limit} in use`;
    case "suspended":
      return formatSuspended(why.value);
    case "paused":
      return `paused${since(why.value.sinceTime)}`;
    case "noWorker":
      return formatNoWorker(why.value);
    case "workersBusy": {
      const { workers, slots, slotsUsed, sinceTime } = why.value;
      return `workers are busy: ${slotsUsed} of ${slots} slots of ${plural(workers, "worker")} used${since(sinceTime)}`;
    }
    case "claimable": {
      const { workers, slots, slotsUsed, sinceTime } = why.value;
      return `about to be taken: ${slotsUsed} of ${slots} slots of ${plural(workers, "worker")} used${since(sinceTime)}`;
    }
    case "waitsForRunLimit": {
      const { key, limit, inUse, runIds, position } = why.value;
      const runs = runIds.map(String);
      return `number ${position} in the queue of ${key}: ${inUse} of ${limit} held by ${runs.length > 1 ? "runs" : "run"} ${some(runs)}`;
    }
    default:
      return "for a reason that this version does not know";
  }
}

function formatNoWorker({ missing, handler, queue, capabilities, sinceTime }: NoWorker): string {
  const lack: Partial<Record<number, string>> = {
    [Missing.HANDLER]: `has the handler ${handler}`,
    [Missing.QUEUE]: `with the handler ${handler} serves the queue ${queue}`,
    [Missing.CAPABILITIES]: `with the handler ${handler} has ${capabilities.join(", ")}`,
  };
  return `no worker ${lack[missing] ?? `can run ${handler}`}${since(sinceTime)}`;
}

function formatSuspended({ signal, childRunId, sinceTime, untilTime }: Suspended): string {
  const what = signal !== "" ? `the signal ${signal}` : childRunId !== 0n ? `run ${childRunId}` : "";
  if (what === "") return `sleeps${until(untilTime)}`;
  return `suspended${since(sinceTime)}: waits for ${what}${untilTime === undefined ? "" : `, at most${until(untilTime)}`}`;
}

const NAMED = 5;

function some(names: readonly string[]): string {
  return names.length > NAMED ? `${names.slice(0, NAMED).join(", ")}…` : names.join(", ");
}

function nameSome(keys: readonly string[], count: number): string {
  if (keys.length === 0) return plural(count, "task");
  const more = count - Math.min(keys.length, NAMED);
  return more > 0 ? `${keys.slice(0, NAMED).join(", ")} and ${more} more` : keys.join(", ");
}

const since = (time: Timestamp | undefined): string => (time === undefined ? "" : ` since ${formatTime(time)}`);
const until = (time: Timestamp | undefined): string => (time === undefined ? "" : ` until ${formatTime(time)}`);
