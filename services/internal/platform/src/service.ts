/** Something that runs until it is stopped. Both moves may be repeated, and a stopped service may start again. */
export interface Service {
  readonly name: string;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Makes one service of many: started in the order given, stopped in reverse.
 * When one fails to start, those already started are stopped before the failure is passed on.
 */
export function composeServices(name: string, services: readonly Service[]): Service {
  let running: Service[] = [];
  let last: Promise<void> = Promise.resolve();

  /** One move at a time, in the order they were asked for: a stop during a start waits for it. */
  function inOrder(move: () => Promise<void>): Promise<void> {
    const result = last.then(move);
    last = result.catch(() => {});
    return result;
  }

  async function startAll(): Promise<void> {
    if (running.length > 0) return;
    for (const service of services) {
      try {
        await service.start();
        running.push(service);
      } catch (cause) {
        const faults = await stopRunning();
        throw new Error(
          faults.length === 0
            ? `${name}: ${service.name} did not start`
            : `${name}: ${service.name} did not start, and ${faults.length} of the others did not stop cleanly`,
          { cause },
        );
      }
    }
  }

  /** Stops all of them whatever happens, and returns what went wrong. */
  async function stopRunning(): Promise<unknown[]> {
    const faults: unknown[] = [];
    const stopping = running.reverse();
    running = [];
    for (const service of stopping) {
      await service.stop().catch((error: unknown) => faults.push(error));
    }
    return faults;
  }

  return {
    name,
    start: () => inOrder(startAll),
    stop: () =>
      inOrder(async () => {
        const faults = await stopRunning();
        if (faults.length > 0) throw new AggregateError(faults, `${name}: not everything stopped cleanly`);
      }),
  };
}
