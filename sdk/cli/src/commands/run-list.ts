import { type Run_State, Run_StateSchema } from "@runmesh/contracts/run/v1/run_pb";
import type { Command } from "commander";
import { readLabel, readWorkflow, type WorkflowTarget } from "../arguments.ts";
import type { Host } from "../host.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { RUN_COLUMNS, runShape } from "../run-view.ts";
import { openSession } from "../session.ts";
import { readStates } from "../state-option.ts";

interface ListOptions extends PageOptions {
  readonly state?: readonly Run_State[];
  readonly workflow?: WorkflowTarget;
  readonly label?: Record<string, string>;
  readonly key?: string;
}

export function addRunList(group: Command, host: Host): void {
  addPageOptions(group.command("list"), 20)
    .description("list runs, newest first")
    .option("--state <states>", "only these, as in RUNNING or failed,timed_out", readStates(Run_StateSchema))
    .option("--workflow <name[@version]>", "only of this workflow", readWorkflow)
    .option("--label <key=value>", "only with this label; may be given again", readLabel)
    .option("--key <key>", "only with this idempotency key")
    .action(async (options: ListOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { runs } = await mesh();
      const filter = {
        states: [...(options.state ?? [])],
        workflow: options.workflow?.workflow ?? "",
        workflowVersion: options.workflow?.version ?? 0,
        labels: options.label ?? {},
        idempotencyKey: options.key ?? "",
      };

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await runs.listRuns({ filter, pageSize, pageToken }, call);
        return { items: answer.runs, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, runShape, RUN_COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
