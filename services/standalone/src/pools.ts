import { type Db, openDb } from "@runmesh/store/db";

export interface Pools {
  readonly hot: Db;
  readonly renewal: Db;
  readonly db: Db;
  readonly lookups: Db;
  close(): Promise<void>;
}

/**
 * Connections for the hot statements, for renewals, which never wait behind the work, and for all else. What a
 * transaction looks up beside itself (a definition that is not cached, ids) has connections that no transaction holds:
 * else as many transactions as there are connections would wait for each other.
 */
export function openPools(directUrl: string, pgbouncerUrl?: string): Pools {
  // PgBouncer in transaction mode passes on neither prepared statements nor startup options.
  const common = { url: pgbouncerUrl ?? directUrl, preparedStatements: pgbouncerUrl === undefined };
  const hot = openDb({ ...common, size: 8, purpose: "hot", applicationName: "runmesh-hot" });
  const renewal = openDb({ ...common, size: 2, purpose: "renewal", applicationName: "runmesh-renewal" });
  const db = openDb({ ...common, size: 8, purpose: "general", applicationName: "runmesh" });
  const lookups = openDb({ ...common, size: 2, purpose: "general", applicationName: "runmesh-lookups" });
  return {
    hot,
    renewal,
    db,
    lookups,
    async close() {
      await Promise.all([hot.close(), renewal.close(), db.close(), lookups.close()]);
    },
  };
}
