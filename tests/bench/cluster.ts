import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";
import pg from "pg";

/** A PostgreSQL of its own, of the embedded binaries and with the embedded server's settings, for one that is measured. */
export interface Cluster {
  readonly url: string;
  readonly postmaster: number;
  readonly logFile: string;
  query<T>(text: string, params?: readonly unknown[]): Promise<T[]>;
  /** Bytes of write-ahead log written so far. */
  readWal(): Promise<number>;
  /** Leaves nothing behind for the next measurement to pay: dead rows, dirty pages. */
  settle(): Promise<void>;
  /** Resolves when the tables named are empty. */
  untilEmpty(tables: readonly string[], timeoutMs?: number): Promise<void>;
  stop(): Promise<void>;
}

const EMPTY_POLL_MS = 3;
const EMPTY_TIMEOUT_MS = 120_000;

export async function openCluster(name: string): Promise<Cluster> {
  const dataDir = await mkdtemp(join(tmpdir(), `runmesh-bench-${name}-`));
  const server = await startEmbeddedPostgres({ dataDir, log: (line) => console.error(`${name}: ${line}`) });
  const client = new pg.Client({ connectionString: server.url, application_name: "bench" });
  await client.connect();
  const postmaster = Number(readFileSync(join(dataDir, "postgres", "postmaster.pid"), "utf8").split("\n")[0]);
  const query = async <T>(text: string, params: readonly unknown[] = []) =>
    (await client.query(text, [...params])).rows as T[];

  return {
    url: server.url,
    postmaster,
    logFile: join(dataDir, "postgres.log"),
    query,
    async readWal() {
      const [row] = await query<{ bytes: string }>("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes");
      return Number(row!.bytes);
    },
    async settle() {
      await query("VACUUM ANALYZE");
      await query("CHECKPOINT");
    },
    async untilEmpty(tables, timeoutMs = EMPTY_TIMEOUT_MS) {
      const text = `SELECT ${tables.map((table) => `NOT EXISTS (SELECT FROM ${table})`).join(" AND ")} AS empty`;
      const deadline = performance.now() + timeoutMs;
      while (performance.now() < deadline) {
        const [row] = await query<{ empty: boolean }>(text);
        if (row!.empty) return;
        await delay(EMPTY_POLL_MS);
      }
      throw new Error(`${name}: ${tables.join(", ")} did not become empty within ${timeoutMs} ms`);
    },
    async stop() {
      await client.end();
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
