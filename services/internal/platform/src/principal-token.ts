import { createHmac, timingSafeEqual } from "node:crypto";
import type { Interceptor } from "@connectrpc/connect";
import { MeshError } from "@runmesh/domain/errors";
import { type Principal, principalKey, ROLES, type Role } from "./principal.ts";

/** Carries a principal from one service to another. Never accepted from outside the mesh. */
const PRINCIPAL_HEADER = "runmesh-principal";

/** The longest life of a token. A revoked key therefore acts for at most this long behind the gateway. */
const TOKEN_LIFE_MS = 60_000;

/** Clocks of two machines may differ by this much. */
const CLOCK_SKEW_MS = 5_000;
const MAX_TOKEN_LENGTH = 4_096;
const MAX_CACHED_TOKENS = 10_000;

export interface TokenOptions {
  /** Shared by the services of one mesh: at least 32 bytes of randomness. */
  readonly secret: string | Uint8Array;
  /** Who the token is for, as in `scheduler`. */
  readonly audience: string;
}

interface Claims {
  readonly tid: number;
  readonly ten: string;
  readonly sub: string;
  readonly rol: readonly Role[];
  /** Scopes and origin, where there are any. */
  readonly scp?: readonly string[];
  readonly org?: string;
  readonly aud: string;
  /** When the token was made, and when it ends, in ms since 1970. */
  readonly iat: number;
  readonly exp: number;
}

/** A token of the form `claims.signature`, both base64url, the signature being HMAC-SHA256 over the first part. */
export function signPrincipal(
  principal: Principal,
  options: TokenOptions & { readonly now: number; readonly lifeMs?: number },
): string {
  const lifeMs = Math.min(options.lifeMs ?? TOKEN_LIFE_MS, TOKEN_LIFE_MS);
  const claims: Claims = {
    tid: principal.tenantId,
    ten: principal.tenant,
    sub: principal.name,
    rol: principal.roles,
    ...(principal.scopes !== undefined && { scp: principal.scopes }),
    ...(principal.origin !== undefined && { org: principal.origin }),
    aud: options.audience,
    iat: options.now,
    exp: options.now + lifeMs,
  };
  const body = Buffer.from(JSON.stringify(claims)).toString("base64url");
  return `${body}.${sign(body, options.secret).toString("base64url")}`;
}

/** The principal of a token; UNAUTHENTICATED when it is malformed, forged, for another audience, or out of its time. */
export function verifyPrincipalToken(token: string, options: TokenOptions & { readonly now: number }): Principal {
  return verify(token, options).principal;
}

interface Verified {
  readonly principal: Principal;
  readonly expiresAt: number;
}

function verify(token: string, options: TokenOptions & { readonly now: number }): Verified {
  const { audience, now, secret } = options;
  const [body, signature, more] = token.length > MAX_TOKEN_LENGTH ? [] : token.split(".", 3);
  if (body === undefined || signature === undefined || more !== undefined) throw refused("is malformed");
  const given = Buffer.from(signature, "base64url");
  const expected = sign(body, secret);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) throw refused("has a wrong signature");

  const claims = readClaims(body);
  if (claims.aud !== audience) throw refused("is for another service");
  if (claims.exp - claims.iat > TOKEN_LIFE_MS) throw refused("lives too long");
  if (claims.iat > now + CLOCK_SKEW_MS) throw refused("is from the future");
  if (claims.exp <= now) throw refused("has expired");
  const principal = {
    tenantId: claims.tid,
    tenant: claims.ten,
    name: claims.sub,
    roles: claims.rol,
    ...(claims.scp !== undefined && { scopes: claims.scp }),
    ...(claims.org !== undefined && { origin: claims.org }),
  };
  return { principal: Object.freeze(principal), expiresAt: claims.exp };
}

/** The signature was right, so the text is ours; another version of RunMesh may still have written other claims. */
function readClaims(body: string): Claims {
  let claims: Partial<Claims> | null;
  try {
    claims = JSON.parse(Buffer.from(body, "base64url").toString()) as Partial<Claims> | null;
  } catch (cause) {
    throw refused("carries no claims", cause);
  }
  const { tid, ten, sub, rol, scp, org, aud, iat, exp } = claims ?? {};
  if (
    !Number.isSafeInteger(tid) ||
    typeof ten !== "string" ||
    typeof sub !== "string" ||
    typeof aud !== "string" ||
    !Number.isFinite(iat) ||
    !Number.isFinite(exp) ||
    !Array.isArray(rol) ||
    !rol.every((role) => ROLES.includes(role)) ||
    !(scp === undefined || (Array.isArray(scp) && scp.every((scope) => typeof scope === "string"))) ||
    !(org === undefined || typeof org === "string")
  ) {
    throw refused("carries unknown claims");
  }
  return claims as Claims;
}

function sign(body: string, secret: string | Uint8Array): Buffer {
  return createHmac("sha256", secret).update(body).digest();
}

function refused(why: string, cause?: unknown): MeshError {
  return new MeshError("UNAUTHENTICATED", `the principal token ${why}`, { cause });
}

/**
 * Client interceptor: signs the principal of the call's context values for the service that is called.
 * A call without a principal goes out without a token. Tokens are made anew after half their life.
 */
export function forwardPrincipal(options: TokenOptions & { readonly now?: () => number }): Interceptor {
  const now = options.now ?? Date.now;
  const signed = new Map<string, { readonly token: string; readonly until: number }>();

  function tokenFor(principal: Principal): string {
    const { tenantId, tenant, name, roles, scopes, origin } = principal;
    const key = JSON.stringify([tenantId, tenant, name, roles, scopes, origin]);
    const known = signed.get(key);
    const at = now();
    if (known !== undefined && at < known.until) return known.token;
    const token = signPrincipal(principal, { secret: options.secret, audience: options.audience, now: at });
    remember(signed, key, { token, until: at + TOKEN_LIFE_MS / 2 });
    return token;
  }

  return (next) => (request) => {
    const principal = request.contextValues.get(principalKey);
    request.header.delete(PRINCIPAL_HEADER);
    if (principal !== undefined) request.header.set(PRINCIPAL_HEADER, tokenFor(principal));
    return next(request);
  };
}

/**
 * Server interceptor: reads the token and sets the principal of the call. A call without one is left as it is:
 * `getPrincipal` or the role table refuses it. Verified tokens are remembered until they expire.
 */
export function acceptPrincipal(options: TokenOptions & { readonly now?: () => number }): Interceptor {
  const now = options.now ?? Date.now;
  const verified = new Map<string, Verified>();

  function principalOf(token: string): Principal {
    const at = now();
    const known = verified.get(token);
    if (known !== undefined && at < known.expiresAt) return known.principal;
    verified.delete(token);
    const fresh = verify(token, { secret: options.secret, audience: options.audience, now: at });
    remember(verified, token, fresh);
    return fresh.principal;
  }

  return (next) => async (request) => {
    const token = request.header.get(PRINCIPAL_HEADER);
    if (token !== null) request.contextValues.set(principalKey, principalOf(token));
    return next(request);
  };
}

/** Bounded: the oldest entry makes room. */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key);
  if (map.size >= MAX_CACHED_TOKENS) {
    const oldest = map.keys().next();
    if (!oldest.done) map.delete(oldest.value);
  }
  map.set(key, value);
}
