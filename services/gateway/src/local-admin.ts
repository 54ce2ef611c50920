import type { Interceptor } from "@connectrpc/connect";
import { type Principal, principalKey } from "@runmesh/platform/principal";

const LOCAL_ADMIN: Principal = {
  tenantId: 1,
  tenant: "default",
  name: "local-admin",
  roles: ["admin"],
};

/**
 * Makes every caller the admin of the default tenant. Only behind the loopback guard, which keeps web pages and other
 * machines away.
 */
export const signInLocalAdmin: Interceptor = (next) => (request) => {
  request.contextValues.set(principalKey, LOCAL_ADMIN);
  return next(request);
};
