import type { Command } from "commander";
import type { Host } from "../host.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { SCHEDULE_COLUMNS, scheduleShape } from "../schedule-view.ts";
import { openSession } from "../session.ts";

export function addScheduleList(group: Command, host: Host): void {
  addPageOptions(group.command("list"))
    .description("list schedules by name")
    .option("--prefix <text>", "only names that begin with this", "")
    .action(async (options: PageOptions & { prefix: string }, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await schedules.listSchedules({ pageSize, pageToken, namePrefix: options.prefix }, call);
        return { items: answer.schedules, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, scheduleShape, SCHEDULE_COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
