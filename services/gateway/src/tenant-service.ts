import type { ServiceImpl } from "@connectrpc/connect";
import { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import type { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { getPrincipal, type Role as RoleName } from "@runmesh/platform/principal";

const ROLE_NUMBERS: Record<RoleName, Role> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  developer: Role.DEVELOPER,
  worker: Role.WORKER,
  admin: Role.ADMIN,
};

/** Who is calling. Keys come with a later version: their methods answer NOT_SERVED. */
export const tenantService: Partial<ServiceImpl<typeof TenantService>> = {
  getPrincipal(_request, context) {
    const { tenant, name, roles } = getPrincipal(context);
    return { principal: { tenant, name, roles: roles.map((role) => ROLE_NUMBERS[role]) } };
  },
};
