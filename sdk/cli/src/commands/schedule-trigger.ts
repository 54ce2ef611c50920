import { TriggerScheduleResponseSchema } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import type { Command } from "commander";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { exitCodeOf, formatRun, runShape } from "../run-view.ts";
import { openSession } from "../session.ts";
import { waitForRun } from "../wait-for-run.ts";

export function addScheduleTrigger(group: Command, host: Host): void {
  group
    .command("trigger")
    .argument("<name>", "the schedule's name")
    .description("start a run of a schedule now, apart from its ticks")
    .option("--wait", "wait for the end, and exit 1 when it is no success")
    .action(async (name: string, options: { wait?: boolean }, command: Command) => {
      const session = openSession(command, host);
      const mesh = await session.mesh();

      const answer = await mesh.schedules.triggerSchedule({ name }, session.call);

      const started = `Started run ${answer.runId}`;
      if (options.wait !== true) {
        session.printer.one(toShape(TriggerScheduleResponseSchema, answer), () => [started]);
        session.printer.note(`Watch it: ${session.next(`run watch ${answer.runId}`)}`);
        return;
      }
      session.printer.note(started);
      const run = await waitForRun(mesh, answer.runId, session.progress, session.signal);
      session.printer.one(runShape(run), () => formatRun(run));
      host.end(exitCodeOf(run));
    });
}
