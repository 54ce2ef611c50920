import { randomUUID } from "node:crypto";
import { EmbeddedBus } from "@runmesh/bus/embedded-bus";
import { type Authentication, createGateway } from "@runmesh/gateway/service";
import { createLeaseManager } from "@runmesh/lease-manager/service";
import { createRelay } from "@runmesh/outbox-relay/relay";
import { assertProductionSecret } from "@runmesh/platform/api-key";
import { createLog, type LogLevel, silentLog } from "@runmesh/platform/log";
import { assertSafeListen } from "@runmesh/platform/loopback-guard";
import { composeServices } from "@runmesh/platform/service";
import { createWakeups } from "@runmesh/platform/wakeup";
import { createScheduler } from "@runmesh/scheduler/service";
import { migrate } from "@runmesh/store/migrate";
import { openDatabase } from "./database.ts";
import { type Finding, inspect } from "./doctor.ts";
import { openPools } from "./pools.ts";

export interface StandaloneOptions {
  /** Loopback only, unless every caller needs a key. Default 127.0.0.1. */
  readonly host?: string;
  /** `local`: callers without a key are the local admin. `keys`: every caller needs a key. Default local. */
  readonly authentication?: Authentication;
  /** Under which API keys are hashed: 32 bytes or more, and none of development. By default the database keeps one. */
  readonly keySecret?: string;
  /** Default 7400; 0 takes a free one. */
  readonly port?: number;
  /** Folder of the embedded PostgreSQL. Excludes `databaseUrl`. Default `.runmesh`. */
  readonly dataDir?: string;
  /** An existing PostgreSQL 15 or later, reached directly. */
  readonly databaseUrl?: string;
  /** PgBouncer in transaction mode before that database: all but migrations go through it. */
  readonly pgbouncerUrl?: string;
  /** Ended runs of tenants without a time of their own are kept so long. Default 30 days. */
  readonly keepRunsMs?: number;
  /** Default info. */
  readonly logLevel?: LogLevel | "silent";
  /** `fast` does not sync writes: for tests only. */
  readonly postgres?: { readonly fast?: boolean };
}

export interface Standalone {
  readonly url: string;
  /** Of the embedded PostgreSQL, where that is what it runs on. */
  readonly dataDir: string | undefined;
  readonly databaseUrl: string;
  /** Checks the whole state for broken invariants (G8). */
  doctor(): Promise<Finding[]>;
  /** Resolves when every committed event has left the outbox. */
  relayed(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts the mesh in this process: every service, wired without a network, on the embedded defaults or given parts. */
export async function startStandalone(options: StandaloneOptions = {}): Promise<Standalone> {
  const host = options.host ?? "127.0.0.1";
  const authentication = options.authentication ?? "local";
  assertSafeListen(host, authentication === "keys");
  if (options.keySecret !== undefined) assertProductionSecret(options.keySecret, "the key secret");
  const log =
    options.logLevel === "silent" ? silentLog : createLog({ level: options.logLevel ?? "info", name: "runmesh" });
  const database = await openDatabase(options, log);
  try {
    await migrate({ url: database.url });
    const pools = openPools(database.url, options.pgbouncerUrl);
    const wakeups = createWakeups();
    const owner = randomUUID();
    const bus = new EmbeddedBus({ db: pools.db, owner, onFault: (error, what) => log.warn({ error }, what) });
    const scheduler = createScheduler({ ...pools, wakeups, log, keepMs: options.keepRunsMs });
    const leaseManager = createLeaseManager({ ...pools, wakeups, log });
    const relay = createRelay({ db: pools.hot, bus, wakeups, log, owner });
    const gateway = createGateway({
      host,
      port: options.port ?? 7400,
      log,
      db: pools.db,
      authentication,
      keySecret: options.keySecret,
      scheduler: scheduler.routes,
      leases: leaseManager.routes,
    });
    const services = composeServices("standalone", [
      { name: "pools", start: async () => {}, stop: pools.close },
      { name: bus.name, start: () => bus.start(), stop: () => bus.stop() },
      relay,
      scheduler,
      leaseManager,
      gateway,
    ]);
    await services.start();
    const { url } = gateway.address();
    database.announce(url);
    return {
      url,
      dataDir: database.dataDir,
      databaseUrl: database.url,
      doctor: () => inspect(pools.db),
      relayed: () => relay.idle(),
      async stop() {
        await services.stop();
        await database.stop();
      },
    };
  } catch (error) {
    await database.stop();
    throw error;
  }
}
