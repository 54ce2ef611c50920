import type { Principal } from "@runmesh/platform/principal";

/** Who is calling, as an authenticator found it. */
export interface Credential {
  readonly principal: Principal;
  /**
   * Throws UNAUTHENTICATED once the credential is good no more. Asked again and again while a call lasts; one without
   * it is good for as long as its call.
   */
  recheck?(): Promise<void>;
}

/** One way to tell who calls: an API key, the local admin, the token of an identity provider. */
export interface Authenticator {
  /**
   * Undefined where the call carries nothing of this kind, so that the next authenticator is asked. Throws
   * UNAUTHENTICATED for a credential of this kind that is not good.
   */
  authenticate(header: Headers): Promise<Credential | undefined>;
}
