import { setTimeout as delay } from "node:timers/promises";
import { createWorker, type RunMeshWorker } from "@runmesh/worker";
import { step } from "./workloads.ts";

export interface WorkerLoad {
  readonly url: string;
  readonly slots: number;
  /** Undefined leaves it to the worker. */
  readonly prefetch?: number;
  /** How long a handler takes; for ever where it is negative. Default 0. */
  readonly handlerMs?: number;
}

/** A worker whose handlers do nothing but count. */
export interface BenchWorker {
  /** Handlers that ended since the start. */
  readonly handled: number;
  untilHandled(count: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startBenchWorker({ url, slots, prefetch, handlerMs = 0 }: WorkerLoad): Promise<BenchWorker> {
  let handled = 0;
  let target = Number.POSITIVE_INFINITY;
  let reached = () => {};
  const worker: RunMeshWorker = createWorker({
    url,
    slots,
    ...(prefetch !== undefined && { prefetch }),
    handlers: [
      step.handle((input) => {
        const end = () => {
          if (++handled >= target) reached();
          return input;
        };
        if (handlerMs === 0) return end();
        return handlerMs < 0 ? new Promise<never>(() => {}) : delay(handlerMs).then(end);
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
