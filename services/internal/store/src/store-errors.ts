import { MeshError } from "@runmesh/domain/errors";
import pg from "pg";

/** What to tell callers to wait after a connection was lost or refused. A restart of PostgreSQL takes about as long. */
const RETRY_AFTER_MS = 500;

/** The server cannot serve for now; nothing of the statement stands. */
const UNAVAILABLE_STATES = new Set([
  "25006", // read-only: a standby, or a minute of maintenance
  "53100", // disk full
  "53200", // out of memory
  "53300", // too many connections
  "53400", // configured limit exceeded
  "57P01", // terminated by an administrator
  "57P02", // another backend crashed
  "57P03", // starting up or shutting down
  "57P05", // idle session timeout
  "25P03", // idle-in-transaction timeout
]);

const SERIALIZATION_FAILURE = "40001";
const DEADLOCK = "40P01";
const LOCK_NOT_AVAILABLE = "55P03";
const QUERY_CANCELLED = "57014";
const UNIQUE_VIOLATION = "23505";

/** The SQLSTATE of a server's error, also when it is the cause of a `MeshError`. */
export function sqlState(error: unknown): string | undefined {
  if (error instanceof pg.DatabaseError) return error.code;
  return error instanceof MeshError ? sqlState(error.cause) : undefined;
}

/** A statement or lock timeout ended the statement. The connection is still good. */
export function isLockTimeout(error: unknown): boolean {
  const state = sqlState(error);
  return state === LOCK_NOT_AVAILABLE || state === QUERY_CANCELLED;
}

/** What another held for too long may be free the next time: the call is to be repeated. Anything else stays as it is. */
export const toRepeat = (error: unknown): unknown =>
  isLockTimeout(error) ? unavailable(error, "another move held what this needs for too long") : error;

/** The server chose this transaction to give way; the same work may succeed when it is repeated. */
export function isRetryable(error: unknown): boolean {
  const state = sqlState(error);
  return state === SERIALIZATION_FAILURE || state === DEADLOCK;
}

/** The unique constraint that refused a row, if one did. */
export function violatedConstraint(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError && error.code === UNIQUE_VIOLATION ? error.constraint : undefined;
}

/**
 * What a failed statement means to callers. `connectionLost` says that the connection is of no further use, which is
 * how pg's own errors without a code are told apart. Errors of the statement itself are returned as they are.
 */
export function classifyStoreError(error: unknown, connectionLost: boolean): unknown {
  if (error instanceof MeshError) return error;
  if (error instanceof pg.DatabaseError) {
    const state = error.code ?? "";
    return UNAVAILABLE_STATES.has(state) || state.startsWith("08") ? unavailable(error) : error;
  }
  return connectionLost || isSystemError(error) ? unavailable(error) : error;
}

export function unavailable(cause: unknown, message = "The database cannot be reached for now."): MeshError {
  return new MeshError("UNAVAILABLE", message, { retryAfterMs: RETRY_AFTER_MS, cause });
}

/** An error of the operating system, as ECONNREFUSED or ENOTFOUND; a refused name with both address families too. */
function isSystemError(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isSystemError);
  return error instanceof Error && "syscall" in error && typeof error.syscall === "string";
}
