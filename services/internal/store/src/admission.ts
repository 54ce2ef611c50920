import { admit } from "./admit.ts";
import type { Db } from "./db.ts";

/** Admits what was just placed, and answers every route that has new ready tasks. */
export async function admitTo(
  tx: Db,
  p: {
    tenantId: number;
    placed: { readonly routeIds: ReadonlySet<number>; readonly keys: readonly string[] };
    /** Keys of slots that were freed in this transaction. */
    freed?: readonly string[];
  },
): Promise<ReadonlySet<number>> {
  const keys = [...p.placed.keys, ...(p.freed ?? [])];
  if (keys.length === 0) return p.placed.routeIds;
  return new Set([...p.placed.routeIds, ...(await admit(tx, { tenantId: p.tenantId, keys }))]);
}
