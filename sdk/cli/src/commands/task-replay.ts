import { randomUUID } from "node:crypto";
import { TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { openSession } from "../session.ts";
import { taskTarget } from "../task-target.ts";

export function addTaskReplay(group: Command, host: Host): void {
  group
    .command("replay")
    .argument("<task|run>", "the task's id, or its run's id", readId)
    .argument("[key]", "with a run: the task's key")
    .description("open a dead task of an ended run again, and what is downstream of it")
    .option("--fresh", "forget recorded steps")
    .action(async (id: bigint, key: string | undefined, options: { fresh?: boolean }, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tasks } = await mesh();
      const taskId = key === undefined ? id : (await tasks.getTask(taskTarget(id, key), call)).task!.id;

      const { task } = await tasks.replayTask({ taskId, fresh: options.fresh === true, requestId: randomUUID() }, call);

      if (task === undefined) throw new Error("ReplayTask answered no task");
      printer.one(toShape(TaskSchema, task), () => [`Replayed ${task.key} of run ${task.runId}`]);
    });
}
