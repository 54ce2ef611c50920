import type { Command } from "commander";
import type { Host } from "../host.ts";
import { formatSchedule, scheduleShape } from "../schedule-view.ts";
import { openSession } from "../session.ts";

export function addScheduleShow(group: Command, host: Host): void {
  group
    .command("show")
    .argument("<name>", "the schedule's name")
    .description("show a schedule: its next ticks, and what became of the last ones")
    .action(async (name: string, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();

      const { schedule } = await schedules.getSchedule({ name }, call);

      if (schedule === undefined) throw new Error("GetSchedule answered no schedule");
      printer.one(scheduleShape(schedule), () => formatSchedule(schedule));
    });
}
