import type { Log } from "./log.ts";
import type { Service } from "./service.ts";

export interface ShutdownOptions {
  readonly log: Log;
  /** When stopping takes longer than this the process ends all the same. Default 30 s. */
  readonly timeoutMs?: number;
  /** Where signals arrive and how the process ends; tests give their own. */
  readonly process?: Pick<NodeJS.Process, "on" | "off" | "exit">;
}

const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/**
 * Stops the service at the first SIGTERM or SIGINT and then ends the process: with 0 when it stopped, with 1 when it
 * failed to or took too long. A second signal ends it at once. Returns what takes the signals away again.
 */
export function stopOnSignals(service: Service, options: ShutdownOptions): () => void {
  const { log, timeoutMs = 30_000, process: host = process } = options;
  let isStopping = false;

  function onSignal(signal: NodeJS.Signals): void {
    if (isStopping) {
      log.warn({ signal }, "stopping at once");
      host.exit(1);
      return;
    }
    isStopping = true;
    log.info({ signal }, "stopping");
    const timer = setTimeout(() => {
      log.error({ timeoutMs }, "did not stop in time");
      host.exit(1);
    }, timeoutMs);
    service.stop().then(
      () => {
        clearTimeout(timer);
        host.exit(0);
      },
      (error: unknown) => {
        clearTimeout(timer);
        log.error({ error }, "did not stop cleanly");
        host.exit(1);
      },
    );
  }

  for (const signal of SIGNALS) host.on(signal, onSignal);
  return () => {
    for (const signal of SIGNALS) host.off(signal, onSignal);
  };
}
