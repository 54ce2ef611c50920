import { MeshError } from "@runmesh/domain/errors";
import { type ApiKeyText, hashApiKey, isOneOf, readApiKey } from "@runmesh/platform/api-key";
import type { Log } from "@runmesh/platform/log";
import { type Principal, ROLES, type Role } from "@runmesh/platform/principal";
import { findUsableKey, touchApiKey, type UsableKey } from "@runmesh/store/api-keys";
import type { Db } from "@runmesh/store/db";
import { LRUCache } from "lru-cache";
import type { Authenticator, Credential } from "./authenticator.ts";

/** With the time between two looks at an open call (authenticate.ts) well below the 5 s of a revocation. */
const KEY_CACHE_MS = 1_500;
const MAX_CACHED = 10_000;
const BEARER = /^bearer +/i;

interface Known {
  /** Undefined: there is no such key, or none that can be used. */
  readonly key: UsableKey | undefined;
  readonly principal: Principal | undefined;
}

/**
 * API keys as bearer tokens. Invariants:
 *   1. The tenant comes from the key alone (G9).
 *   2. What the database said of a key is believed for KEY_CACHE_MS; the secret is compared at each call all the same.
 *   3. A lookup that fails lets nobody in.
 */
export class KeyAuthenticator implements Authenticator {
  readonly #db: Db;
  readonly #secret: () => Promise<string>;
  readonly #log: Log;
  readonly #known = new LRUCache<string, Known>({ max: MAX_CACHED, ttl: KEY_CACHE_MS });
  readonly #asked = new Map<string, Promise<Known>>();

  /** `secret` is the mesh's own, under which keys are hashed. */
  constructor(options: { readonly db: Db; readonly secret: () => Promise<string>; readonly log: Log }) {
    this.#db = options.db;
    this.#secret = options.secret;
    this.#log = options.log;
  }

  async authenticate(header: Headers): Promise<Credential | undefined> {
    const text = header.get("authorization");
    if (text === null || !BEARER.test(text)) return undefined;
    const key = readApiKey(text.replace(BEARER, ""));
    if (key === undefined) return undefined;
    const principal = await this.#verify(key);
    return {
      principal,
      recheck: async () => {
        await this.#verify(key);
      },
    };
  }

  /** Asks anew at the key's next use: it was moved here. */
  forget(id: string): void {
    this.#known.delete(id);
  }

  async #verify(text: ApiKeyText): Promise<Principal> {
    const { key, principal } = this.#known.get(text.id) ?? (await this.#ask(text.id));
    const hash = hashApiKey(text, await this.#secret());
    if (key === undefined || principal === undefined || !isOneOf(hash, key.hashes)) {
      throw new MeshError("UNAUTHENTICATED", "the API key is unknown, revoked, rotated or expired");
    }
    if (key.is_use_stale) {
      key.is_use_stale = false;
      touchApiKey(this.#db, { tenantId: key.tenant_id, id: key.id }).catch((error: unknown) =>
        this.#log.debug({ error, keyId: key.id }, "the use of a key was not noted"),
      );
    }
    return principal;
  }

  /** Calls that want the same key share the question. */
  #ask(id: string): Promise<Known> {
    let asked = this.#asked.get(id);
    if (asked === undefined) {
      asked = this.#find(id).finally(() => this.#asked.delete(id));
      this.#asked.set(id, asked);
    }
    return asked;
  }

  async #find(id: string): Promise<Known> {
    const key = await findUsableKey(this.#db, { id });
    const known = { key, principal: key && toPrincipal(key) };
    this.#known.set(id, known);
    return known;
  }
}

function toPrincipal(key: UsableKey): Principal {
  return Object.freeze({
    tenantId: key.tenant_id,
    tenant: key.tenant,
    name: `key:${key.id}`,
    // A role that another version knows gives nothing here.
    roles: key.roles.filter((role): role is Role => ROLES.some((known) => known === role)),
    ...(key.scopes.length > 0 && { scopes: key.scopes }),
  });
}
