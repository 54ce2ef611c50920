import { MeshError } from "@runmesh/domain/errors";
import { createKeyId, createKeySecret, hashApiKey, writeApiKey } from "@runmesh/platform/api-key";
import type { Role } from "@runmesh/platform/principal";
import { isWithin } from "@runmesh/platform/scopes";
import {
  type ApiKeyRow,
  countApiKeys,
  endApiKeySecrets,
  forgetRevokedKeys,
  insertApiKey,
  insertApiKeySecret,
  lockApiKey,
  revokeApiKey,
} from "@runmesh/store/api-keys";
import { insertAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";

/** Secrets of a key that work at once: the newest, and those before it whose overlap is not over. */
const MAX_SECRETS = 5;
/** Keys of a tenant that are not revoked. */
const MAX_KEYS = 10_000;
/** Keys whose time is over go when others are made. */
const FORGOTTEN_AT_ONCE = 100;

/** Who moves a key. */
export interface KeyMover {
  readonly name: string;
  readonly origin?: string | undefined;
  /** What narrows it narrows the keys whose secrets it gets. None narrow nothing. */
  readonly scopes?: readonly string[] | undefined;
}

export interface KeyWanted {
  readonly name: string;
  readonly roles: readonly Role[];
  readonly scopes: readonly string[];
  readonly expiresAt: Date | undefined;
}

/** A key with the one sight of its text. */
export interface ShownKey {
  readonly row: ApiKeyRow;
  readonly text: string;
}

/** Moves of keys, each audited in its transaction. Their texts are in the answer and nowhere else. */
export class Keys {
  readonly #db: Db;
  readonly #secret: () => Promise<string>;

  constructor(db: Db, secret: () => Promise<string>) {
    this.#db = db;
    this.#secret = secret;
  }

  /**
   * Throws ALREADY_EXISTS, TOO_LARGE beyond the keys that a tenant may have, and FORBIDDEN beyond the mover's scopes.
   * `check` may refuse, in the same transaction.
   */
  async create(
    tenantId: number,
    wanted: KeyWanted,
    by: KeyMover,
    action = "key.create",
    check: (tx: Db) => Promise<void> = async () => {},
  ): Promise<ShownKey> {
    refuseWider(wanted.scopes, by);
    const text = { id: createKeyId(), secret: createKeySecret() };
    const hash = hashApiKey(text, await this.#secret());
    const row = await this.#db.transaction(async (tx) => {
      await check(tx);
      await forgetRevokedKeys(tx, { tenantId, limit: FORGOTTEN_AT_ONCE });
      if ((await countApiKeys(tx, { tenantId, limit: MAX_KEYS })) >= MAX_KEYS) {
        throw new MeshError("TOO_LARGE", `a tenant has at most ${MAX_KEYS} keys: revoke what is not used`);
      }
      const inserted = await insertApiKey(tx, { tenantId, id: text.id, ...wanted });
      if (inserted === undefined) throw new MeshError("ALREADY_EXISTS", `a key named ${wanted.name} is there`);
      await insertApiKeySecret(tx, { tenantId, id: text.id, hash });
      await this.#audit(tx, tenantId, by, action, text.id);
      return inserted;
    });
    return { row, text: writeApiKey(text) };
  }

  /**
   * Throws NOT_FOUND, ILLEGAL_MOVE where the key works no more or has too many secrets that work, and FORBIDDEN where its
   * new secret would let the mover do more than its own.
   */
  async rotate(tenantId: number, id: string, overlapMs: number, by: KeyMover): Promise<ShownKey> {
    const text = { id, secret: createKeySecret() };
    const hash = hashApiKey(text, await this.#secret());
    const row = await this.#db.transaction(async (tx) => {
      const key = await lockApiKey(tx, { tenantId, id });
      if (key === undefined) throw missing(id);
      refuseWider(key.scopes, by);
      if (key.revoked_at !== null) throw new MeshError("ILLEGAL_MOVE", `key ${id} is revoked`);
      if (key.is_expired) throw new MeshError("ILLEGAL_MOVE", `key ${id} has expired`);
      if (overlapMs > 0 && key.secret_count >= MAX_SECRETS) {
        throw new MeshError(
          "ILLEGAL_MOVE",
          `key ${id} has ${MAX_SECRETS} secrets that work: wait for an overlap's end`,
        );
      }
      const rotated = await endApiKeySecrets(tx, { tenantId, id, overlapMs });
      await insertApiKeySecret(tx, { tenantId, id, hash });
      await this.#audit(tx, tenantId, by, "key.rotate", id);
      return rotated!;
    });
    return { row, text: writeApiKey(text) };
  }

  /** Throws NOT_FOUND. A revoked key stays so, and its second revocation is no move. */
  revoke(tenantId: number, id: string, by: KeyMover): Promise<ApiKeyRow> {
    return this.#db.transaction(async (tx) => {
      const key = await lockApiKey(tx, { tenantId, id });
      if (key === undefined) throw missing(id);
      if (key.revoked_at !== null) return key;
      const row = await revokeApiKey(tx, { tenantId, id });
      await this.#audit(tx, tenantId, by, "key.revoke", id);
      return row!;
    });
  }

  #audit(tx: Db, tenantId: number, by: KeyMover, action: string, id: string) {
    const { name: principal, origin } = by;
    return insertAudit(tx, { tenantId, principal, origin, action, target: `key/${id}`, result: "done" });
  }
}

function refuseWider(scopes: readonly string[], { scopes: own = [] }: KeyMover): void {
  if (isWithin(scopes, own)) return;
  throw new MeshError("FORBIDDEN", `the key would do more than the scopes of this credential: ${own.join(", ")}`);
}

const missing = (id: string) => new MeshError("NOT_FOUND", `no key ${id}`);
