import { randomBytes } from "node:crypto";
import type { Db } from "@runmesh/store/db";
import { keepSetting } from "@runmesh/store/settings";

/**
 * The secret under which keys are hashed: the one given, else one of the database's own, made at its first use. The
 * same for every process on one database, and for ever: keys end with it.
 */
export function openMeshSecret(db: Db, given: string | undefined): () => Promise<string> {
  if (given !== undefined) return () => Promise.resolve(given);
  let kept: Promise<string> | undefined;
  return () => {
    kept ??= keepSetting(db, { name: "key_secret", offered: randomBytes(48).toString("base64url") }).catch(
      (error: unknown) => {
        kept = undefined;
        throw error;
      },
    );
    return kept;
  };
}
