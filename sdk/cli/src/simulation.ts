import { setTimeout as delay } from "node:timers/promises";

export interface SimulationOptions {
  readonly url: string;
  readonly apiKey?: string | undefined;
  readonly handlers: readonly string[];
  /** Each measured runtime is slept times this; 0 sleeps not at all. */
  readonly scale: number;
  readonly slots: number;
}

/** Serves imported workflows with a worker that sleeps in place of working. Disposing stops it. */
export async function startSimulation(options: SimulationOptions): Promise<AsyncDisposable> {
  const [{ defineTask }, { createWorker }] = await Promise.all([import("@runmesh/client"), import("@runmesh/worker")]);
  const { url, apiKey, scale, slots } = options;
  const worker = createWorker({
    url,
    name: "simulation",
    slots,
    ...(apiKey !== undefined && { apiKey }),
    handlers: options.handlers.map((name) =>
      defineTask({ name, input: ANY, output: ANY }).handle(async (params, context) => {
        const ms = readRuntimeMs(params) * scale;
        if (ms > 0) await delay(ms, undefined, { signal: context.signal });
        return { sleptMs: ms };
      }),
    ),
  });
  await worker.start();
  return { [Symbol.asyncDispose]: async () => void (await worker.stop()) };
}

/** A Standard Schema that takes everything: what was imported is described by its file alone. */
const ANY = {
  "~standard": { version: 1, vendor: "runmesh", validate: (value: unknown) => ({ value }) },
} as const;

function readRuntimeMs(params: unknown): number {
  const runtimeMs = (params as { runtimeMs?: unknown } | null)?.runtimeMs;
  return typeof runtimeMs === "number" && runtimeMs >= 0 ? runtimeMs : 0;
}
