import type { Command } from "commander";
import type { Host } from "../host.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import { TENANT_COLUMNS, tenantShape } from "../tenant-view.ts";

export function addTenantList(group: Command, host: Host): void {
  addPageOptions(group.command("list"))
    .description("list the tenants by name")
    .action(async (options: PageOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await tenants.listTenants({ pageSize, pageToken }, call);
        return { items: answer.tenants, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, tenantShape, TENANT_COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}
