import { AttemptOutcomeSchema } from "@runmesh/contracts/event/v1/event_pb";
import { type Attempt, type Task, Task_State, Task_StateSchema } from "@runmesh/contracts/task/v1/task_pb";
import { enumName } from "./json-shape.ts";
import { formatNotRunning } from "./not-running-view.ts";
import { textOf } from "./run-view.ts";
import { type Column, formatRecord } from "./table.ts";
import { formatSpan, formatTime } from "./times.ts";

/** How tasks and their attempts are shown to people. */

export const TASK_COLUMNS: readonly Column<Task>[] = [
  { title: "KEY", read: (task) => task.key },
  { title: "HANDLER", read: (task) => task.handler },
  { title: "STATE", read: stateOf },
  { title: "ATTEMPTS", align: "right", read: (task) => task.attemptCount },
  { title: "WORKER", read: (task) => task.lease?.worker ?? "" },
  { title: "NOT RUNNING", read: (task) => formatNotRunning(task.notRunning) },
  { title: "LAST ERROR", read: errorOf },
  { title: "TASK", read: (task) => String(task.id) },
];

export const ATTEMPT_COLUMNS: readonly Column<Attempt>[] = [
  { title: "ATTEMPT", align: "right", read: (attempt) => attempt.number },
  { title: "OUTCOME", read: (attempt) => enumName(AttemptOutcomeSchema, attempt.outcome) },
  { title: "WORKER", read: (attempt) => attempt.worker },
  { title: "LEASED (UTC)", read: (attempt) => formatTime(attempt.leaseTime) },
  { title: "TOOK", align: "right", read: (attempt) => formatSpan(attempt.startTime, attempt.endTime) },
  { title: "ERROR", read: errorOf },
];

export function formatTask(task: Task): string[] {
  const [params, resolved] = [textOf(task.paramsJson), textOf(task.resolvedParamsJson)];
  return formatRecord([
    ["task", String(task.id)],
    ["run", String(task.runId)],
    ["key", task.key],
    ["handler", task.handler],
    ["state", stateOf(task)],
    ["not running", formatNotRunning(task.notRunning)],
    ["queue", task.queue],
    ["requires", task.requires.join(" ")],
    ["priority", task.priority || undefined],
    ["depends on", task.dependsOn.join(" ")],
    ["attempts", task.attemptCount],
    ["due", formatTime(task.dueTime)],
    ["leased by", task.lease?.worker],
    ["lease ends", formatTime(task.lease?.expireTime)],
    ["progress", task.lease && textOf(task.lease.progressJson)],
    [task.state === Task_State.SUCCEEDED ? "last error" : "error", errorOf(task)],
    ["params", resolved || params],
    // With its references, where they are resolved above.
    ["written as", resolved === "" || resolved === params ? "" : params],
    ["output", textOf(task.outputJson)],
  ]);
}

function stateOf(task: Task): string {
  return enumName(Task_StateSchema, task.state);
}

export function errorOf({ error }: Task | Attempt): string {
  return error === undefined ? "" : `${error.type}: ${error.message}`;
}
