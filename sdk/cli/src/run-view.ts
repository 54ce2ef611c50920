import { type Run, Run_State, Run_StateSchema, RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { EXIT, type ExitCode } from "./exit-codes.ts";
import { enumName, toShape } from "./json-shape.ts";
import { formatNotRunning } from "./not-running-view.ts";
import { type Column, formatRecord } from "./table.ts";
import { formatSpan, formatTime } from "./times.ts";

/** How a run is shown, to people and to scripts. */

export const RUN_COLUMNS: readonly Column<Run>[] = [
  { title: "RUN", read: (run) => String(run.id) },
  { title: "WORKFLOW", read: workflowOf },
  { title: "STATE", read: stateOf },
  { title: "TASKS", align: "right", read: (run) => `${endedOf(run)}/${run.tasks?.total ?? 0}` },
  { title: "DEAD", align: "right", read: (run) => run.tasks?.dead ?? 0 },
  { title: "CREATED (UTC)", read: (run) => formatTime(run.createTime) },
  { title: "TOOK", align: "right", read: (run) => formatSpan(run.createTime, run.endTime) },
  { title: "KEY", read: (run) => run.idempotencyKey },
];

export function runShape(run: Run): Record<string, unknown> {
  return toShape(RunSchema, run);
}

export function formatRun(run: Run): string[] {
  const { succeeded = 0, dead = 0, skipped = 0, cancelled = 0, open = 0, total = 0 } = run.tasks ?? {};
  return formatRecord([
    ["run", String(run.id)],
    ["workflow", workflowOf(run)],
    ["state", stateOf(run)],
    ["not running", formatNotRunning(run.notRunning)],
    [
      "tasks",
      `${total}: ${succeeded} succeeded, ${open} open, ${dead} dead, ${skipped} skipped, ${cancelled} cancelled`,
    ],
    ["key", run.idempotencyKey],
    ["child of", run.parentRunId === 0n ? "" : `run ${run.parentRunId}, task ${run.parentTaskId}`],
    ["rerun of", run.rerunOf === 0n ? "" : `run ${run.rerunOf}`],
    [
      "labels",
      Object.entries(run.labels)
        .map(([key, value]) => `${key}=${value}`)
        .join(" "),
    ],
    ["created", formatTime(run.createTime)],
    ["due", formatTime(run.dueTime)],
    ["started", formatTime(run.startTime)],
    ["deadline", formatTime(run.deadlineTime)],
    ["ended", formatTime(run.endTime)],
    ["took", formatSpan(run.createTime, run.endTime)],
    ["failure", run.failure && `task ${run.failure.taskKey}: ${run.failure.errorType}: ${run.failure.message}`],
    ["cancelled", run.cancellation && byWhom(run.cancellation)],
    ["input", textOf(run.inputJson)],
    ["output", textOf(run.outputJson)],
    ["events", String(run.sequence)],
  ]);
}

/** Who did something, and why they say they did. */
export function byWhom({ principal, comment }: { readonly principal: string; readonly comment: string }): string {
  return [principal === "" ? "" : `by ${principal}`, comment].filter((part) => part !== "").join(": ");
}

/** What the end of a run means to a script. */
export function exitCodeOf(run: Run): ExitCode {
  return run.state === Run_State.SUCCEEDED ? EXIT.DONE : EXIT.RUN_FAILED;
}

export function stateOf(run: Run): string {
  return enumName(Run_StateSchema, run.state);
}

export function textOf(json: Uint8Array): string {
  return new TextDecoder().decode(json);
}

function workflowOf(run: Run): string {
  return run.workflowVersion === 0 ? run.workflow : `${run.workflow}@${run.workflowVersion}`;
}

function endedOf(run: Run): number {
  return (run.tasks?.total ?? 0) - (run.tasks?.open ?? 0);
}
