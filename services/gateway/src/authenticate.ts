import type { Interceptor } from "@connectrpc/connect";
import { MeshError } from "@runmesh/domain/errors";
import { PUBLIC_SERVICES } from "@runmesh/platform/authorization";
import { originKey } from "@runmesh/platform/origin";
import { principalKey } from "@runmesh/platform/principal";
import type { Authenticator, Credential } from "./authenticator.ts";
import { guardCall, guardStream } from "./guard-call.ts";

/**
 * Server interceptor: the first authenticator that knows the call's credential says whose call it is. A call that is
 * still open when its credential ends is ended with UNAUTHENTICATED, be it a stream or a long poll.
 */
export function authenticate(authenticators: readonly Authenticator[]): Interceptor {
  const open = new Set(PUBLIC_SERVICES);

  async function find(header: Headers): Promise<Credential | undefined> {
    for (const authenticator of authenticators) {
      const credential = await authenticator.authenticate(header);
      if (credential !== undefined) return credential;
    }
    if (!header.has("authorization")) return undefined;
    throw new MeshError("UNAUTHENTICATED", "the credential is of no kind that is taken here");
  }

  return (next) => async (request) => {
    if (open.has(request.service.typeName)) return next(request);
    const credential = await find(request.header);
    if (credential === undefined) throw new MeshError("UNAUTHENTICATED", "the call carries no credential");
    const origin = request.contextValues.get(originKey);
    request.contextValues.set(principalKey, { ...credential.principal, origin });
    // No handler needs it any more, and what is not there cannot be logged.
    request.header.delete("authorization");
    const response = await guardCall(credential, next(request));
    return response.stream ? { ...response, message: guardStream(credential, response.message) } : response;
  };
}
