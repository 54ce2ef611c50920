import { resolve } from "node:path";
import { invalidField } from "@runmesh/domain/errors";
import type { Log } from "@runmesh/platform/log";
import { startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";
import { ensureDatabase } from "@runmesh/store/migrate";
import type { StandaloneOptions } from "./standalone.ts";

export interface OpenDatabase {
  readonly url: string;
  readonly dataDir: string | undefined;
  /** Tells who next tries the same folder where this mesh is reached. */
  announce(url: string): void;
  stop(): Promise<void>;
}

/** The database given, or an embedded one in its folder. */
export async function openDatabase(options: StandaloneOptions, log: Log): Promise<OpenDatabase> {
  if (options.databaseUrl !== undefined) {
    if (options.dataDir !== undefined) throw invalidField("dataDir", "excludes databaseUrl");
    await ensureDatabase(options.databaseUrl);
    return { url: options.databaseUrl, dataDir: undefined, announce: () => {}, stop: async () => {} };
  }
  const dataDir = resolve(options.dataDir ?? ".runmesh");
  const server = await startEmbeddedPostgres({
    dataDir,
    log: (line) => log.debug({ postgres: line }, "postgres"),
    fast: options.postgres?.fast ?? false,
  });
  return { url: server.url, dataDir, announce: (url) => server.lock.update({ url }), stop: () => server.stop() };
}
