import type { Principal } from "@runmesh/platform/principal";
import type { Authenticator } from "./authenticator.ts";

const LOCAL_ADMIN: Principal = {
  tenantId: 1,
  tenant: "default",
  name: "local-admin",
  roles: ["admin"],
};

/**
 * Makes every caller without a credential the admin of the default tenant. Only behind the loopback guard, which keeps
 * web pages and other machines away.
 */
export const localAdmin: Authenticator = {
  async authenticate(header) {
    return header.has("authorization") ? undefined : { principal: LOCAL_ADMIN };
  },
};
