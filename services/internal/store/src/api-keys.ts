import type { Db } from "./db.ts";

export interface ApiKeyRow {
  id: string;
  name: string;
  roles: string[];
  scopes: string[];
  created_at: Date;
  expires_at: Date | null;
  last_used_at: Date | null;
  revoked_at: Date | null;
  rotated_until: Date | null;
}

const COLUMNS = "id, name, roles, scopes, created_at, expires_at, last_used_at, revoked_at, rotated_until";

export interface NewApiKey {
  readonly tenantId: number;
  readonly id: string;
  readonly name: string;
  readonly roles: readonly string[];
  readonly scopes: readonly string[];
  readonly expiresAt: Date | undefined;
}

/** Nothing where a key that is not revoked has the name, or the expiry is past. Its secret is added apart. */
export const insertApiKey = (db: Db, p: NewApiKey) =>
  db.find<ApiKeyRow>(
    "insert_api_key",
    `
  INSERT INTO api_key (tenant_id, id, name, roles, scopes, expires_at)
  VALUES ($1, $2, $3, $4, $5, $6)
  ON CONFLICT (tenant_id, name) WHERE revoked_at IS NULL DO NOTHING
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.id, p.name, p.roles, p.scopes, p.expiresAt],
  );

/** Keys of the tenant that are not revoked, counted up to `limit`. */
export const countApiKeys = async (db: Db, p: { tenantId: number; limit: number }): Promise<number> =>
  (
    await db.one<{ count: number }>(
      "count_api_keys",
      `
  SELECT count(*)::int AS count
  FROM (SELECT FROM api_key WHERE tenant_id = $1 AND revoked_at IS NULL LIMIT $2) AS counted`,
      [p.tenantId, p.limit],
    )
  ).count;

/** Forgets keys of the tenant that were revoked over 400 days ago, as the audit forgets who did it. */
export const forgetRevokedKeys = (db: Db, p: { tenantId: number; limit: number }) =>
  db.rows<{ id: string }>(
    "forget_revoked_keys",
    `
  DELETE FROM api_key
  WHERE tenant_id = $1 AND id = ANY (ARRAY(
    SELECT id FROM api_key
    WHERE tenant_id = $1 AND revoked_at < clock_timestamp() - interval '400 days'
    LIMIT $2
    FOR UPDATE SKIP LOCKED
  ))
  RETURNING id`,
    [p.tenantId, p.limit],
  );

/** Newest first, after the key `beforeId`; from the first where that is empty. */
export const listApiKeys = (db: Db, p: { tenantId: number; beforeId: string; limit: number }) =>
  db.rows<ApiKeyRow>(
    "list_api_keys",
    `
  SELECT ${COLUMNS} FROM api_key
  WHERE tenant_id = $1
    AND ($2 = '' OR (created_at, id) < (SELECT created_at, id FROM api_key WHERE tenant_id = $1 AND id = $2))
  ORDER BY created_at DESC, id DESC
  LIMIT $3`,
    [p.tenantId, p.beforeId, p.limit],
  );

/** Locks a key for a move, with how many of its secrets work, and whether it can be used at all. */
export const lockApiKey = (db: Db, p: { tenantId: number; id: string }) =>
  db.find<ApiKeyRow & { is_expired: boolean; secret_count: number }>(
    "lock_api_key",
    `
  SELECT ${COLUMNS}, coalesce(expires_at <= clock_timestamp(), false) AS is_expired, (
    SELECT count(*)::int FROM api_key_secret AS secret
    WHERE secret.tenant_id = $1 AND secret.key_id = $2 AND coalesce(secret.until > clock_timestamp(), true)
  ) AS secret_count
  FROM api_key
  WHERE tenant_id = $1 AND id = $2
  FOR NO KEY UPDATE`,
    [p.tenantId, p.id],
  );

/** Under the key's lock: secrets that are over go, the others get an end. */
export const endApiKeySecrets = (db: Db, p: { tenantId: number; id: string; overlapMs: number }) =>
  db.find<ApiKeyRow>(
    "end_api_key_secrets",
    `
  WITH gone AS (
    DELETE FROM api_key_secret
    WHERE tenant_id = $1 AND key_id = $2 AND ($3::float8 <= 0 OR until <= clock_timestamp())
  ), ended AS (
    UPDATE api_key_secret
    SET until = least(until, clock_timestamp() + make_interval(secs => $3::float8 / 1000))
    WHERE tenant_id = $1 AND key_id = $2 AND $3::float8 > 0 AND coalesce(until > clock_timestamp(), true)
  )
  UPDATE api_key
  SET rotated_until = clock_timestamp() + make_interval(secs => $3::float8 / 1000)
  WHERE tenant_id = $1 AND id = $2
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.id, p.overlapMs],
  );

export const insertApiKeySecret = (db: Db, p: { tenantId: number; id: string; hash: Buffer }) =>
  db.rows("insert_api_key_secret", "INSERT INTO api_key_secret (tenant_id, key_id, hash) VALUES ($1, $2, $3)", [
    p.tenantId,
    p.id,
    p.hash,
  ]);

/** A revoked key stays as it is. */
export const revokeApiKey = (db: Db, p: { tenantId: number; id: string }) =>
  db.find<ApiKeyRow>(
    "revoke_api_key",
    `
  UPDATE api_key SET revoked_at = coalesce(revoked_at, clock_timestamp())
  WHERE tenant_id = $1 AND id = $2
  RETURNING ${COLUMNS}`,
    [p.tenantId, p.id],
  );

export interface UsableKey {
  tenant_id: number;
  tenant: string;
  id: string;
  roles: string[];
  scopes: string[];
  /** Of the secrets that work now. */
  hashes: Buffer[];
  /** That it is used has not been noted within a minute. */
  is_use_stale: boolean;
}

/**
 * The key of an id, whatever its tenant: the caller proves it by the secret. Nothing where it is revoked or expired by
 * the database's clock (G4).
 */
export const findUsableKey = (db: Db, p: { id: string }) =>
  db.find<UsableKey>(
    "find_usable_key",
    `
  SELECT key.tenant_id, tenant.name AS tenant, key.id, key.roles, key.scopes,
    ARRAY(
      SELECT secret.hash FROM api_key_secret AS secret
      WHERE secret.tenant_id = key.tenant_id AND secret.key_id = key.id
        AND coalesce(secret.until > clock_timestamp(), true)
    ) AS hashes,
    coalesce(key.last_used_at < clock_timestamp() - interval '1 minute', true) AS is_use_stale
  FROM api_key AS key
  JOIN tenant ON tenant.id = key.tenant_id
  WHERE key.id = $1 AND key.revoked_at IS NULL AND coalesce(key.expires_at > clock_timestamp(), true)`,
    [p.id],
  );

export const touchApiKey = (db: Db, p: { tenantId: number; id: string }) =>
  db.rows(
    "touch_api_key",
    `
  UPDATE api_key SET last_used_at = clock_timestamp()
  WHERE tenant_id = $1 AND id = $2 AND coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)`,
    [p.tenantId, p.id],
  );

/** How many keys of the tenant could be used by an admin now; under the tenant's lock, so that two cannot both be first. */
export const countAdminKeys = async (db: Db, p: { tenantId: number }): Promise<number> => {
  await db.rows("lock_tenant", "SELECT id FROM tenant WHERE id = $1 FOR NO KEY UPDATE", [p.tenantId]);
  const { count } = await db.one<{ count: number }>(
    "count_admin_keys",
    `
  SELECT count(*)::int AS count FROM api_key
  WHERE tenant_id = $1 AND 'admin' = ANY (roles) AND scopes = '{}' AND revoked_at IS NULL
    AND coalesce(expires_at > clock_timestamp(), true)`,
    [p.tenantId],
  );
  return count;
};
