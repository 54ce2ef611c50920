import { type Workflow, WorkflowSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { Command } from "commander";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import type { Column } from "../table.ts";
import { formatTime } from "../times.ts";

const COLUMNS: readonly Column<Workflow>[] = [
  { title: "WORKFLOW", read: (workflow) => workflow.name },
  { title: "VERSION", align: "right", read: (workflow) => workflow.latestVersion },
  { title: "CREATED (UTC)", read: (workflow) => formatTime(workflow.createTime) },
  { title: "UPDATED (UTC)", read: (workflow) => formatTime(workflow.updateTime) },
];

export function addWorkflowList(group: Command, host: Host): void {
  addPageOptions(group.command("list"))
    .description("list workflows by name")
    .option("--prefix <text>", "only names that begin with this", "")
    .action(async (options: PageOptions & { prefix: string }, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { workflows } = await mesh();

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await workflows.listWorkflows({ pageSize, pageToken, namePrefix: options.prefix }, call);
        return { items: answer.workflows, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, (workflow) => toShape(WorkflowSchema, workflow), COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
