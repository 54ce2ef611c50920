import { type Tenant, TenantSchema } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { toShape } from "./json-shape.ts";
import type { Column } from "./table.ts";
import { formatTime } from "./times.ts";

export const tenantShape = (tenant: Tenant): Record<string, unknown> => toShape(TenantSchema, tenant);

const limitOf = (limit: number | undefined) => limit || "default";

export const TENANT_COLUMNS: readonly Column<Tenant>[] = [
  { title: "TENANT", read: (tenant) => tenant.name },
  { title: "REQUESTS/S", align: "right", read: (tenant) => limitOf(tenant.quota?.requestsPerSecond) },
  { title: "STARTS/S", align: "right", read: (tenant) => limitOf(tenant.quota?.startsPerSecond) },
  { title: "KEEPS DAYS", align: "right", read: (tenant) => limitOf(tenant.quota?.keepDays) },
  { title: "CREATED (UTC)", read: (tenant) => formatTime(tenant.createTime) },
];
