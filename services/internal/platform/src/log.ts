import { type DestinationStream, pino } from "pino";

/** Fields of a log line. Payloads, credentials and whole requests never belong here: name ids, counts and reasons. */
export type LogFields = Readonly<Record<string, unknown>>;

export interface Log {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export interface LogOptions {
  readonly level: LogLevel;
  /** Which service writes. */
  readonly name: string;
  /** Where lines go; standard error when left out, because standard output belongs to a command's result. */
  readonly destination?: DestinationStream;
}

/** Names under which a secret or a payload could slip into a line; pino replaces their values. */
const HIDDEN = ["authorization", "secret", "token", "password", "input", "output", "payload", "params"].flatMap(
  (key) => [key, `*.${key}`],
);

/** A log of one JSON object a line; an `error` field becomes type, message, stack and causes. */
export function createLog(options: LogOptions): Log {
  return pino(
    {
      level: options.level,
      base: { service: options.name },
      formatters: { level: (level) => ({ level }) },
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      errorKey: "error",
      serializers: { error: describeError },
      redact: HIDDEN,
    },
    options.destination ?? pino.destination({ fd: 2, sync: false }),
  );
}

/** For tests and for callers that do not want a log. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

/** At most five causes deep. Other properties of an error stay out: drivers put parameters of a query there. */
function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return String(error);
  return {
    type: error.name,
    message: error.message,
    stack: error.stack,
    ...("code" in error && { code: error.code }),
    ...("reason" in error && { reason: error.reason }),
    ...(error.cause !== undefined && depth < 5 && { cause: describeError(error.cause, depth + 1) }),
  };
}
