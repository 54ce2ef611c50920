import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { MeshError } from "@runmesh/domain/errors";

export const ROLES = ["viewer", "operator", "developer", "worker", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** The tenant "default". Its admins make the other tenants. */
export const SYSTEM_TENANT_ID = 1;

/** On whose behalf a call is made. */
export interface Principal {
  readonly tenantId: number;
  readonly tenant: string;
  /** Name of the person, key or service, as it appears in the audit. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Narrow what the roles allow; none, or an empty list, narrow nothing. */
  readonly scopes?: readonly string[];
  /** The address that the call came from, for the audit. */
  readonly origin?: string;
}

/** Set by whatever authenticated the call, before any handler or the role table is asked. */
export const principalKey = createContextKey<Principal | undefined>(undefined, {
  description: "the authenticated principal of a call",
});

/** The principal of a call; UNAUTHENTICATED when nothing authenticated it. */
export function getPrincipal(context: Pick<HandlerContext, "values">): Principal {
  const principal = context.values.get(principalKey);
  if (principal === undefined) throw new MeshError("UNAUTHENTICATED", "the call carries no credential");
  return principal;
}
