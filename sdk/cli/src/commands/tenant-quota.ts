import type { Command } from "commander";
import type { Host } from "../host.ts";
import { addQuotaOptions, type QuotaOptions } from "../quota-options.ts";
import { openSession } from "../session.ts";
import { formatTable } from "../table.ts";
import { TENANT_COLUMNS, tenantShape } from "../tenant-view.ts";

export function addTenantQuota(group: Command, host: Host): void {
  addQuotaOptions(group.command("quota"))
    .argument("<name>", "the tenant")
    .description("replace a tenant's quota; it takes hold within 5 s")
    .action(async (name: string, options: QuotaOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();
      const { requestsPerSecond, startsPerSecond, keepDays } = options;

      const { tenant } = await tenants.setQuota(
        { tenant: name, quota: { requestsPerSecond, startsPerSecond, keepDays } },
        call,
      );

      printer.one(tenantShape(tenant!), () => [`Set the quota of ${name}`, ...formatTable([tenant!], TENANT_COLUMNS)]);
    });
}
