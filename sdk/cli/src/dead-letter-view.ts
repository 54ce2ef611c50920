import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import type { Task } from "@runmesh/contracts/task/v1/task_pb";
import type { Column } from "./table.ts";
import { errorOf } from "./task-view.ts";
import { formatTime } from "./times.ts";

/** How dead letters are shown to people: with the workflow of their run, and when that failed. */
export function deadLetterColumns(runs: readonly Run[]): readonly Column<Task>[] {
  const byId = new Map(runs.map((run) => [run.id, run]));
  return [
    { title: "RUN", read: (task) => String(task.runId) },
    { title: "WORKFLOW", read: (task) => byId.get(task.runId)?.workflow ?? "" },
    { title: "FAILED (UTC)", read: (task) => formatTime(byId.get(task.runId)?.endTime) },
    { title: "KEY", read: (task) => task.key },
    { title: "HANDLER", read: (task) => task.handler },
    { title: "ATTEMPTS", align: "right", read: (task) => task.attemptCount },
    { title: "ERROR", read: errorOf },
    { title: "TASK", read: (task) => String(task.id) },
  ];
}
