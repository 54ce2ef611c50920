import pg from "pg";
import { valueParsers } from "./value-parsers.ts";

/**
 * - `hot`: the statements of the claim and settle path, whose plans are fixed by the session's settings.
 * - `renewal`: as hot, with short timeouts: a renewal that waits longer than a lease lasts is worth nothing.
 * - `general`: everything else, planned as PostgreSQL sees fit.
 */
export type Purpose = "hot" | "general" | "renewal";

export interface PoolOptions {
  readonly url: string;
  /** Connections at most. */
  readonly size: number;
  readonly purpose: Purpose;
  readonly applicationName: string;
  /**
   * False behind PgBouncer in transaction mode: statements are not named and no startup options are sent, since it
   * passes on neither. The timeouts are then those that `migrate` sets on the role.
   */
  readonly preparedStatements?: boolean;
}

interface Timeouts {
  readonly statementMs: number;
  readonly lockMs: number;
  readonly idleInTransactionMs: number;
}

export const TIMEOUTS: Readonly<Record<Purpose, Timeouts>> = {
  hot: { statementMs: 15_000, lockMs: 5_000, idleInTransactionMs: 15_000 },
  renewal: { statementMs: 4_000, lockMs: 2_000, idleInTransactionMs: 5_000 },
  general: { statementMs: 30_000, lockMs: 10_000, idleInTransactionMs: 30_000 },
};

/** How long to wait for a connection: a free one of the pool, or a new one. */
const CONNECTION_TIMEOUT_MS = 5_000;
const IDLE_CONNECTION_MS = 60_000;
const KEEPALIVE_DELAY_MS = 10_000;

/**
 * The hot statements have one good plan each, by index or tid. A generic plan made when a table was small must not
 * turn into a scan when it has grown, so the planner is left with that plan only.
 */
const FIXED_PLANS = {
  plan_cache_mode: "force_generic_plan",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
};

/** The startup options of a connection, as `-c name=value …`. */
export function startupOptions(purpose: Purpose): string {
  const { statementMs, lockMs, idleInTransactionMs } = TIMEOUTS[purpose];
  const settings: Record<string, string | number> = {
    jit: "off",
    TimeZone: "UTC",
    statement_timeout: statementMs,
    lock_timeout: lockMs,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    ...(purpose === "general" ? {} : FIXED_PLANS),
  };
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(" ");
}

/** A pool that never ends the process: an error on an idle or lent connection only costs that connection. */
export function createPool(options: PoolOptions): pg.Pool {
  const named = options.preparedStatements ?? true;
  const { connectionString, urlOptions } = splitUrlOptions(options.url);
  const startup = [named ? startupOptions(options.purpose) : "", urlOptions].filter((part) => part !== "").join(" ");
  const pool = new pg.Pool({
    connectionString,
    ...(startup === "" ? {} : { options: startup }),
    max: options.size,
    application_name: options.applicationName,
    connectionTimeoutMillis: CONNECTION_TIMEOUT_MS,
    idleTimeoutMillis: IDLE_CONNECTION_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_DELAY_MS,
    types: valueParsers,
  });
  // The pool has already dropped the connection. Whoever needs one next sees whether the server is there.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => {
    client.on("error", () => lost.add(client));
    client.on("end", () => lost.add(client));
  });
  return pool;
}

const lost = new WeakSet<pg.PoolClient>();

/** The connection has failed: pg's own errors about that carry no code to tell them by. */
export function isLost(client: pg.PoolClient): boolean {
  return lost.has(client);
}

/** pg lets the URL's `options` replace ours, so they are joined instead, the URL's last. */
function splitUrlOptions(url: string): { connectionString: string; urlOptions: string } {
  const parsed = new URL(url);
  const urlOptions = parsed.searchParams.get("options") ?? "";
  parsed.searchParams.delete("options");
  return { connectionString: parsed.href, urlOptions };
}
