import { type Db, openDb } from "@runmesh/store/db";

export interface Pools {
  readonly hot: Db;
  readonly renewal: Db;
  readonly db: Db;
  close(): Promise<void>;
}

/** Connections for the hot statements, for renewals, which never wait behind the work, and for all else. */
export function openPools(directUrl: string, pgbouncerUrl?: string): Pools {
  // PgBouncer in transaction mode passes on neither prepared statements nor startup options.
  const common = { url: pgbouncerUrl ?? directUrl, preparedStatements: pgbouncerUrl === undefined };
  const hot = openDb({ ...common, size: 8, purpose: "hot", applicationName: "runmesh-hot" });
  const renewal = openDb({ ...common, size: 2, purpose: "renewal", applicationName: "runmesh-renewal" });
  const db = openDb({ ...common, size: 8, purpose: "general", applicationName: "runmesh" });
  return {
    hot,
    renewal,
    db,
    async close() {
      await Promise.all([hot.close(), renewal.close(), db.close()]);
    },
  };
}
