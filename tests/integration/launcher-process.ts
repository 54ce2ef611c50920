// A launcher that starts PostgreSQL on a folder, prints its URL, and lives until it is killed or told to stop.
import { MeshError } from "@runmesh/domain/errors";
import { startEmbeddedPostgres } from "@runmesh/store/embedded-postgres";

const [dataDir = "", url = ""] = process.argv.slice(2);
try {
  const postgres = await startEmbeddedPostgres({ dataDir, log: (line) => console.error(line) });
  postgres.lock.update({ url });
  process.once("SIGTERM", async () => {
    await postgres.stop();
    process.exit(0);
  });
  console.log(JSON.stringify({ url: postgres.url }));
} catch (error) {
  if (!(error instanceof MeshError)) throw error;
  console.log(JSON.stringify({ reason: error.reason, message: error.message }));
}
