import {
  type TaskDefinition,
  WorkflowSchema,
  type WorkflowVersion,
  WorkflowVersionSchema,
} from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { Command } from "commander";
import { readWorkflow, type WorkflowTarget } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { openSession } from "../session.ts";
import { type Column, formatRecord, formatTable } from "../table.ts";
import { formatTime } from "../times.ts";

const COLUMNS: readonly Column<TaskDefinition>[] = [
  { title: "KEY", read: (task) => task.key },
  { title: "HANDLER", read: (task) => task.handler },
  { title: "QUEUE", read: (task) => task.queue || "default" },
  { title: "DEPENDS ON", read: (task) => task.dependsOn.join(" ") },
];

export function addWorkflowShow(group: Command, host: Host): void {
  group
    .command("show")
    .argument("<name[@version]>", "a registered workflow; without a version the newest", readWorkflow)
    .description("show a workflow and the tasks of its definition")
    .action(async (target: WorkflowTarget, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { workflows } = await mesh();

      const answer = await workflows.getWorkflow({ name: target.workflow, version: target.version }, call);

      const { workflow, version } = answer;
      if (workflow === undefined || version === undefined) throw new Error("GetWorkflow answered no workflow");
      printer.one({ ...toShape(WorkflowSchema, workflow), version: toShape(WorkflowVersionSchema, version) }, () => [
        ...formatVersion(version, workflow.latestVersion),
        "",
        ...formatTasks(version),
      ]);
    });
}

function formatVersion(version: WorkflowVersion, latest: number): string[] {
  return formatRecord([
    ["workflow", version.workflow],
    ["version", version.version === latest ? `${latest}, the newest` : `${version.version} of ${latest}`],
    ["tasks", version.taskCount],
    ["edges", version.edgeCount],
    ["registered", formatTime(version.createTime)],
    ["content", version.contentHash],
  ]);
}

function formatTasks(version: WorkflowVersion): string[] {
  return formatTable(version.definition?.tasks ?? [], COLUMNS);
}
