import type { Command } from "commander";
import type { Host } from "../host.ts";
import { scheduleShape } from "../schedule-view.ts";
import { openSession } from "../session.ts";
import { formatTime } from "../times.ts";

export function addScheduleResume(group: Command, host: Host): void {
  group
    .command("resume")
    .argument("<name>", "the schedule's name")
    .description("resume a schedule with its next tick from now")
    .action(async (name: string, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();

      const { schedule } = await schedules.resumeSchedule({ name }, call);

      if (schedule === undefined) throw new Error("ResumeSchedule answered no schedule");
      printer.one(scheduleShape(schedule), () => [`Schedule ${name} ticks next at ${formatTime(schedule.nextTime)}`]);
    });
}
