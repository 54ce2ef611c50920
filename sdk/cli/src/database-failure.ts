import { findCertificateFault } from "./certificate-fault.ts";
import { EXIT, type ExitCode } from "./exit-codes.ts";

/** What PostgreSQL said to a command that talks to it without a mesh between: `dev`, `start`, `migrate`, `doctor`. */
export interface DatabaseFailure {
  readonly exitCode: ExitCode;
  readonly reason: string;
  readonly message: string;
  readonly advice: string;
}

const URL_ADVICE = "Correct the database URL: --database-url or RUNMESH_DATABASE_URL.";
const MIGRATE_ADVICE = "Make it with `runmesh migrate`, or correct the database URL.";

/** Errors that the one who gave the URL can correct, by their SQLSTATE. */
const BY_STATE: Readonly<Record<string, readonly [reason: string, advice: string]>> = {
  "28000": ["UNAUTHENTICATED", URL_ADVICE],
  "28P01": ["UNAUTHENTICATED", URL_ADVICE],
  "3D000": ["NOT_FOUND", MIGRATE_ADVICE],
  "42P01": ["NOT_FOUND", MIGRATE_ADVICE],
  "42703": ["NOT_FOUND", MIGRATE_ADVICE],
  "42501": ["FORBIDDEN", "Grant it to the role of the database URL, or use the database's owner."],
};

const CERTIFICATE_ADVICE =
  "Name its CA in the database URL, as in ?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem, and the host as it does.";

/** A refusal of PostgreSQL itself, or of its certificate; undefined for one that is no fault of the URL. */
export function describeDatabaseRefusal(error: unknown): DatabaseFailure | undefined {
  const fault = findCertificateFault(error);
  if (fault !== undefined) {
    const message = `the database's certificate is not accepted: ${fault}`;
    return { exitCode: EXIT.REFUSED, reason: "UNAUTHENTICATED", message, advice: CERTIFICATE_ADVICE };
  }
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code, severity } = cause as Error & { code?: unknown; severity?: unknown };
    const known = typeof code === "string" && typeof severity === "string" ? BY_STATE[code] : undefined;
    if (known === undefined) continue;
    const [reason, advice] = known;
    return { exitCode: EXIT.REFUSED, reason, message: `PostgreSQL refuses: ${cause.message}`, advice };
  }
  return undefined;
}

/** What began it, as in "connect ECONNREFUSED 127.0.0.1:5432"; empty where nothing is told. */
export function innermostMessage(error: Error): string {
  // A name with two addresses fails as an AggregateError without a message of its own.
  const cause = error.cause ?? (error instanceof AggregateError ? error.errors[0] : undefined);
  return cause instanceof Error ? innermostMessage(cause) || cause.message : "";
}
