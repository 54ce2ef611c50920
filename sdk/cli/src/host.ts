import type { ExitCode } from "./exit-codes.ts";
import type { Terminal } from "./terminal.ts";

/** What surrounds a command: tests give their own. */
export interface Host {
  readonly terminal: Terminal;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborts at Ctrl-C and at SIGTERM. */
  readonly signal: AbortSignal;
  /** The whole of standard input, as it came. */
  readStdin(): Promise<Uint8Array>;
  /** The command ended as this code says; without a call it is DONE. */
  end(code: ExitCode): void;
}
