import { createWorker, type RunMeshWorker } from "@runmesh/worker";
import { step } from "./workloads.ts";

export interface WorkerLoad {
  readonly url: string;
  readonly slots: number;
  /** Undefined leaves it to the worker. */
  readonly prefetch?: number;
}

/** A worker whose handlers do nothing but count. */
export interface BenchWorker {
  /** Handlers that ended since the start. */
  readonly handled: number;
  untilHandled(count: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startBenchWorker({ url, slots, prefetch }: WorkerLoad): Promise<BenchWorker> {
  let handled = 0;
  let target = Number.POSITIVE_INFINITY;
  let reached = () => {};
  const worker: RunMeshWorker = createWorker({
    url,
    slots,
    ...(prefetch !== undefined && { prefetch }),
    handlers: [
      step.handle((input) => {
        if (++handled >= target) reached();
        return input;
      }),
    ],
  });
  await worker.start();
  return {
    get handled() {
      return handled;
    },
    untilHandled(count) {
      if (handled >= count) return Promise.resolve();
      target = count;
      return new Promise((resolve) => {
        reached = resolve;
      });
    },
    stop: () => worker.stop(),
  };
}
