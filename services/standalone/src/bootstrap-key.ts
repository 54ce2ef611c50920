import { MeshError } from "@runmesh/domain/errors";
import { readName } from "@runmesh/domain/names";
import { Keys } from "@runmesh/gateway/keys";
import { openMeshSecret } from "@runmesh/gateway/mesh-secret";
import { assertProductionSecret } from "@runmesh/platform/api-key";
import { SYSTEM_TENANT_ID } from "@runmesh/platform/principal";
import { countAdminKeys } from "@runmesh/store/api-keys";
import { openDb } from "@runmesh/store/db";

export interface BootstrapOptions {
  readonly databaseUrl: string;
  readonly name: string;
  /** The one that the mesh is started with, if any. */
  readonly keySecret?: string;
  /** Makes one although there is an admin's key: all of them are lost. */
  readonly force?: boolean;
}

export interface BootstrappedKey {
  readonly id: string;
  readonly name: string;
  /** The key's text, told this once. */
  readonly secret: string;
}

/**
 * Makes the system's first admin key in the database itself, for whoever has its password has everything. Audited as
 * "key.bootstrap". Throws ALREADY_EXISTS where an admin's key works.
 */
export async function bootstrapKey(options: BootstrapOptions): Promise<BootstrappedKey> {
  const { databaseUrl: url, keySecret } = options;
  const name = readName(options.name, "name");
  if (keySecret !== undefined) assertProductionSecret(keySecret, "the key secret");
  const db = openDb({ url, size: 1, purpose: "general", applicationName: "runmesh-bootstrap" });
  try {
    const { row, text } = await new Keys(db, openMeshSecret(db, keySecret)).create(
      SYSTEM_TENANT_ID,
      { name, roles: ["admin"], scopes: [], expiresAt: undefined },
      { name: "bootstrap", origin: "database" },
      "key.bootstrap",
      async (tx) => {
        const count = await countAdminKeys(tx, { tenantId: SYSTEM_TENANT_ID });
        if (count === 0 || options.force === true) return;
        const works = count === 1 ? "an admin's key works" : `${count} admins' keys work`;
        throw new MeshError("ALREADY_EXISTS", `${works} already: use it, or --force where all of them are lost`);
      },
    );
    return { id: row.id, name: row.name, secret: text };
  } finally {
    await db.close();
  }
}

/** Whether anybody could call a mesh that wants keys. */
export async function hasAdminKey({ databaseUrl: url }: { readonly databaseUrl: string }): Promise<boolean> {
  const db = openDb({ url, size: 1, purpose: "general", applicationName: "runmesh-bootstrap" });
  try {
    return (await db.transaction((tx) => countAdminKeys(tx, { tenantId: SYSTEM_TENANT_ID }))) > 0;
  } finally {
    await db.close();
  }
}
