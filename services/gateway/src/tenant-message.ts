import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  ApiKeySchema,
  AuditEntrySchema,
  PrincipalSchema,
  Role,
  TenantSchema,
} from "@runmesh/contracts/tenant/v1/tenant_pb";
import { invalidField } from "@runmesh/domain/errors";
import { type Principal, ROLES, type Role as RoleName } from "@runmesh/platform/principal";
import type { ApiKeyRow } from "@runmesh/store/api-keys";
import type { AuditRow } from "@runmesh/store/audit";
import type { TenantRow } from "@runmesh/store/tenants";

const NUMBERS: Record<RoleName, Role> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  developer: Role.DEVELOPER,
  worker: Role.WORKER,
  admin: Role.ADMIN,
};

/** At least one role, each once. Throws INVALID_FIELD. */
export function readRoles(roles: readonly Role[], field: string): RoleName[] {
  if (roles.length === 0) throw invalidField(field, "a key has at least one");
  for (const [i, role] of roles.entries()) {
    if (!ROLES.some((name) => NUMBERS[name] === role)) throw invalidField(`${field}[${i}]`, "is no role");
  }
  return ROLES.filter((name) => roles.includes(NUMBERS[name]));
}

export const writePrincipal = ({ tenant, name, roles, scopes = [] }: Principal) =>
  create(PrincipalSchema, { tenant, name, roles: roles.map((role) => NUMBERS[role]), scopes: [...scopes] });

export const writeTenant = (row: TenantRow) =>
  create(TenantSchema, {
    name: row.name,
    createTime: timestampFromDate(row.created_at),
    quota: {
      requestsPerSecond: row.requests_per_second ?? 0,
      startsPerSecond: row.starts_per_second ?? 0,
      keepDays: row.keep_days ?? 0,
    },
  });

export const writeKey = (row: ApiKeyRow) =>
  create(ApiKeySchema, {
    id: row.id,
    name: row.name,
    roles: ROLES.filter((role) => row.roles.includes(role)).map((role) => NUMBERS[role]),
    scopes: row.scopes,
    createTime: timestampFromDate(row.created_at),
    ...(row.expires_at !== null && { expireTime: timestampFromDate(row.expires_at) }),
    ...(row.last_used_at !== null && { lastUsedTime: timestampFromDate(row.last_used_at) }),
    ...(row.revoked_at !== null && { revokeTime: timestampFromDate(row.revoked_at) }),
    ...(row.rotated_until !== null && { overlapEndTime: timestampFromDate(row.rotated_until) }),
  });

export const writeAudit = ({ id, at, principal, action, target, origin, result, comment }: AuditRow) =>
  create(AuditEntrySchema, { id, time: timestampFromDate(at), principal, action, target, origin, result, comment });
