import type { Command } from "commander";
import type { Host } from "../host.ts";
import { addQuotaOptions, type QuotaOptions } from "../quota-options.ts";
import { openSession } from "../session.ts";
import { tenantShape } from "../tenant-view.ts";

export function addTenantCreate(group: Command, host: Host): void {
  addQuotaOptions(group.command("create"))
    .argument("<name>", "1 to 63 of [a-z0-9-], a letter first")
    .description("make a tenant; `key create --tenant` makes its first key")
    .action(async (name: string, options: QuotaOptions, command: Command) => {
      const { printer, call, mesh, next } = openSession(command, host);
      const { tenants } = await mesh();
      const { requestsPerSecond, startsPerSecond, keepDays } = options;

      const { tenant } = await tenants.createTenant(
        { name, quota: { requestsPerSecond, startsPerSecond, keepDays } },
        call,
      );

      printer.one(tenantShape(tenant!), () => [`Made tenant ${name}`]);
      printer.note(`Make its first key: ${next(`key create NAME --tenant ${name} --role admin`)}`);
    });
}
