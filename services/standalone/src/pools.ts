import { type Db, openDb } from "@runmesh/store/db";

export interface Pools {
  readonly hot: Db;
  readonly renewal: Db;
  readonly db: Db;
  close(): Promise<void>;
}

/** Connections for the hot statements, for renewals, which never wait behind the work, and for all else. */
export function openPools(url: string): Pools {
  const hot = openDb({ url, size: 8, purpose: "hot", applicationName: "runmesh-hot" });
  const renewal = openDb({ url, size: 2, purpose: "renewal", applicationName: "runmesh-renewal" });
  const db = openDb({ url, size: 8, purpose: "general", applicationName: "runmesh" });
  return {
    hot,
    renewal,
    db,
    async close() {
      await Promise.all([hot.close(), renewal.close(), db.close()]);
    },
  };
}
