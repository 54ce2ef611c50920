import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Standalone, startStandalone } from "./standalone.ts";

/** A mesh for tests: `await using mesh = await startTestMesh()`, then `connect(mesh)` and `createWorker(mesh)`. */
export interface TestMesh extends AsyncDisposable {
  readonly url: string;
  readonly databaseUrl: string;
  /** Checks the whole state for broken invariants; empty when all is well. */
  doctor: Standalone["doctor"];
  /** Stops the mesh and removes its data. */
  stop(): Promise<void>;
}

export interface TestMeshOptions {
  /** Default silent. */
  readonly logLevel?: "silent" | "error" | "warn" | "info" | "debug";
}

/**
 * Starts a real mesh, PostgreSQL included, in a temporary folder and at a free port. One for a test file is enough: it
 * takes a second or two to start. Its writes are not synced to disk, so it is for tests only.
 */
export async function startTestMesh(options: TestMeshOptions = {}): Promise<TestMesh> {
  const dataDir = await mkdtemp(join(tmpdir(), "runmesh-test-mesh-"));
  const remove = () => rm(dataDir, { recursive: true, force: true });
  const mesh = await startStandalone({
    dataDir,
    port: 0,
    logLevel: options.logLevel ?? "silent",
    postgres: { fast: true },
  }).catch(async (error: unknown) => {
    await remove();
    throw error;
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= mesh.stop().finally(remove);
    return stopped;
  };
  return { url: mesh.url, databaseUrl: mesh.databaseUrl, doctor: mesh.doctor, stop, [Symbol.asyncDispose]: stop };
}
