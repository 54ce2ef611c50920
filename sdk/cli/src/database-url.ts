import { accessSync, constants } from "node:fs";
import type { Host } from "./host.ts";
import { UsageError } from "./usage-error.ts";

/** What node-postgres knows; it takes any other for `verify-full` without a word. */
const SSL_MODES = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];
/** Parameters of the URL that name a file. */
const SSL_FILES = ["sslrootcert", "sslcert", "sslkey"];

/** The URL of a PostgreSQL, from an option or RUNMESH_DATABASE_URL. Throws UsageError for one that cannot be meant. */
export function readDatabaseUrl(option: string | undefined, host: Host): string {
  const given = option ?? (host.env.RUNMESH_DATABASE_URL || undefined);
  if (given === undefined) {
    throw new UsageError("which database?", {
      advice: "Give --database-url or RUNMESH_DATABASE_URL, as in postgresql://user:password@host:5432/runmesh.",
    });
  }
  const url = URL.parse(given);
  if (url === null || (url.protocol !== "postgres:" && url.protocol !== "postgresql:")) {
    throw new UsageError("the database URL is no PostgreSQL URL", {
      advice:
        "Write it as in postgresql://user:password@host:5432/runmesh, with %40 for @, %23 for # and so on in the password.",
    });
  }
  checkSsl(url.searchParams);
  return given;
}

function checkSsl(parameters: URLSearchParams): void {
  const mode = parameters.get("sslmode");
  if (mode !== null && !SSL_MODES.includes(mode)) {
    throw new UsageError(`the database URL has an sslmode that is not known: ${mode}`, {
      advice: "Use sslmode=verify-full for TLS; docs/operations.md has the others.",
    });
  }
  for (const name of SSL_FILES) {
    const path = parameters.get(name);
    if (path === null) continue;
    try {
      accessSync(path, constants.R_OK);
    } catch (cause) {
      throw new UsageError(`the database URL has an ${name} that cannot be read: ${path}`, {
        advice: "Name a file in PEM that this user may read.",
        cause,
      });
    }
  }
}
