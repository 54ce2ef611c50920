import type { Command } from "commander";
import type { Host } from "../host.ts";
import { KEY_COLUMNS, keyShape } from "../key-view.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";

export function addKeyList(group: Command, host: Host): void {
  addPageOptions(group.command("list"))
    .description("list the tenant's keys, newest first, revoked ones included")
    .action(async (options: PageOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await tenants.listApiKeys({ pageSize, pageToken }, call);
        return { items: answer.keys, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, keyShape, KEY_COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
