import { type Task_State, Task_StateSchema, TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import { readStates } from "../state-option.ts";
import { TASK_COLUMNS } from "../task-view.ts";

interface ListOptions extends PageOptions {
  readonly state?: readonly Task_State[];
}

export function addTaskList(group: Command, host: Host): void {
  addPageOptions(group.command("list").argument("<run>", "the run's id", readId), 10_000)
    .description("list the tasks of a run in the order of its definition")
    .option("--state <states>", "only these, as in DEAD or ready,leased", readStates(Task_StateSchema))
    .action(async (runId: bigint, options: ListOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tasks } = await mesh();
      const states = [...(options.state ?? [])];

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await tasks.listTasks({ runId, states, pageSize, pageToken }, call);
        return { items: answer.tasks, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, (task) => toShape(TaskSchema, task), TASK_COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
