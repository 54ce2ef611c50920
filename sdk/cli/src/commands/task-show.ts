import { AttemptSchema, TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import { formatTable } from "../table.ts";
import { taskTarget } from "../task-target.ts";
import { ATTEMPT_COLUMNS, formatTask } from "../task-view.ts";

/** A task may have 10,000 attempts; a person reads the first of them, a script pages by the API. */
const MAX_ATTEMPTS = 10_000;

export function addTaskShow(group: Command, host: Host): void {
  group
    .command("show")
    .argument("<task|run>", "the task's id, or its run's id", readId)
    .argument("[key]", "with a run: the task's key")
    .description("show a task: state, params, output, error, ended attempts")
    .action(async (id: bigint, key: string | undefined, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tasks } = await mesh();

      const { task } = await tasks.getTask(taskTarget(id, key), call);
      if (task === undefined) throw new Error("GetTask answered no task");
      const { items: attempts } = await readPages(MAX_ATTEMPTS, "", async (pageSize, pageToken) => {
        const answer = await tasks.listAttempts({ taskId: task.id, pageSize, pageToken }, call);
        return { items: answer.attempts, nextPageToken: answer.nextPageToken };
      });

      printer.one(
        { ...toShape(TaskSchema, task), attempts: attempts.map((attempt) => toShape(AttemptSchema, attempt)) },
        () => [...formatTask(task), ...(attempts.length > 0 ? ["", ...formatTable(attempts, ATTEMPT_COLUMNS)] : [])],
      );
    });
}
