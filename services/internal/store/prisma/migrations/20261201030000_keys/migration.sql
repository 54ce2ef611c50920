-- What the mesh itself must remember, as the secret under which keys are hashed.
CREATE TABLE setting (
  name text PRIMARY KEY,
  value text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A machine's credential. Its secrets are in api_key_secret.
CREATE TABLE api_key (
  tenant_id integer NOT NULL REFERENCES tenant (id),
  -- Part of the key's text, so unique across tenants: the key alone tells the tenant.
  id text NOT NULL UNIQUE,
  name text NOT NULL,
  roles text[] NOT NULL,
  -- Empty: whatever the roles allow.
  scopes text[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz,
  -- Until when secrets of before the last rotation work.
  rotated_until timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX api_key_name ON api_key (tenant_id, name) WHERE revoked_at IS NULL;

-- Secrets of a key: the newest without an end, those before it until their overlap is over.
CREATE TABLE api_key_secret (
  tenant_id integer NOT NULL,
  key_id text NOT NULL,
  -- HMAC-SHA256 of id and secret under the mesh's own secret.
  hash bytea NOT NULL,
  until timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, key_id, hash),
  FOREIGN KEY (tenant_id, key_id) REFERENCES api_key (tenant_id, id) ON DELETE CASCADE
);

-- Limits of a tenant that are not the mesh's own defaults. NULL: the default.
CREATE TABLE tenant_quota (
  tenant_id integer PRIMARY KEY REFERENCES tenant (id),
  -- Of each principal.
  requests_per_second integer CHECK (requests_per_second > 0),
  -- Of the tenant as a whole.
  starts_per_second integer CHECK (starts_per_second > 0),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- From where: the address that the gateway saw. Empty for the mesh itself.
ALTER TABLE audit ADD COLUMN origin text NOT NULL DEFAULT '';
CREATE INDEX audit_at ON audit (at);
