import type { Command } from "commander";
import { addFilterOptions, type FilterOptions, readFilter } from "../filter-options.ts";
import type { Host } from "../host.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { RUN_COLUMNS, runShape } from "../run-view.ts";
import { openSession } from "../session.ts";

export function addRunList(group: Command, host: Host): void {
  addFilterOptions(addPageOptions(group.command("list"), 20).description("list runs, newest first")).action(
    async (options: FilterOptions & PageOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { runs } = await mesh();
      const filter = readFilter(options);

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await runs.listRuns({ filter, pageSize, pageToken }, call);
        return { items: answer.runs, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, runShape, RUN_COLUMNS);
      printer.nextPage(page.nextPageToken);
    },
  );
}
