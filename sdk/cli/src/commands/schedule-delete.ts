import type { Command } from "commander";
import type { Host } from "../host.ts";
import { openSession } from "../session.ts";

export function addScheduleDelete(group: Command, host: Host): void {
  group
    .command("delete")
    .argument("<name>", "the schedule's name")
    .description("delete a schedule; the runs that it started go on")
    .action(async (name: string, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();

      await schedules.deleteSchedule({ name }, call);

      printer.one({ name, deleted: true }, () => [`Deleted schedule ${name}`]);
    });
}
