import type { Command } from "commander";
import type { Host } from "../host.ts";
import { scheduleShape } from "../schedule-view.ts";
import { openSession } from "../session.ts";

export function addSchedulePause(group: Command, host: Host): void {
  group
    .command("pause")
    .argument("<name>", "the schedule's name")
    .description("pause a schedule: its ticks start nothing; the runs that it started go on")
    .action(async (name: string, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();

      const { schedule } = await schedules.pauseSchedule({ name }, call);

      if (schedule === undefined) throw new Error("PauseSchedule answered no schedule");
      printer.one(scheduleShape(schedule), () => [`Schedule ${name} is paused`]);
    });
}
