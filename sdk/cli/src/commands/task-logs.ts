import { type LogLine, LogLine_LevelSchema, LogLineSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Command } from "commander";
import { readCount, readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { enumName, toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import { taskTarget } from "../task-target.ts";
import { printable } from "../terminal.ts";
import { formatTime } from "../times.ts";

interface LogsOptions extends PageOptions {
  readonly attempt: number;
}

export function addTaskLogs(group: Command, host: Host): void {
  const command = group
    .command("logs")
    .argument("<task|run>", "the task's id, or its run's id", readId)
    .argument("[key]", "with a run: the task's key");
  addPageOptions(command, 10_000)
    .description("print the log of a task, oldest line first")
    .option("--attempt <number>", "only of this attempt; 0 means of every one", readCount(0, 100_000), 0)
    .action(async (id: bigint, key: string | undefined, options: LogsOptions, self: Command) => {
      const { printer, call, mesh } = openSession(self, host);
      const { tasks } = await mesh();
      const taskId = key === undefined ? id : (await tasks.getTask(taskTarget(id, key), call)).task?.id;
      if (taskId === undefined) throw new Error("GetTask answered no task");

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await tasks.listLogs({ taskId, attempt: options.attempt, pageSize, pageToken }, call);
        return { items: answer.lines, nextPageToken: answer.nextPageToken };
      });

      for (const line of page.items) printer.entry(toShape(LogLineSchema, line), () => formatLine(line));
      if (page.items.length === 0) printer.note("Nothing there.");
      printer.nextPage(page.nextPageToken);
    });
}

function formatLine(line: LogLine): string {
  const level = enumName(LogLine_LevelSchema, line.level).padEnd(5);
  return `${formatTime(line.time)}  ${line.attempt}  ${level}  ${printable(line.message)}`;
}
