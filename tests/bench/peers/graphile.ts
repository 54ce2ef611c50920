/** graphile-worker, tuned: a local queue of 500 and batched completes. In one process, without history. */
import {
  type AddJobsJobSpec,
  Logger,
  makeWorkerUtils,
  type Runner,
  run,
  WorkerPreset,
  type WorkerUtils,
} from "graphile-worker";
import { serveCalls } from "../serve-calls.ts";

const LOCAL_QUEUE = 500;
const POOL = 12;

const logger = new Logger(() => () => undefined);
let connectionString = "";
let utils: WorkerUtils;
let runner: Runner | undefined;
let handled = 0;
let target = Number.POSITIVE_INFINITY;
let reached = () => {};
let arrived = (_n: number) => {};

serveCalls({
  async start(databaseUrl: string) {
    connectionString = databaseUrl;
    utils = await makeWorkerUtils({ connectionString, logger });
    await utils.migrate();
  },
  async submit({ count, batch, inFlight }: { count: number; batch: number; inFlight: number }) {
    let next = 0;
    const send = async () => {
      while (next < count) {
        const from = next;
        next = Math.min(count, from + batch);
        const jobs: AddJobsJobSpec[] = Array.from({ length: next - from }, (_, i) => ({
          identifier: "step",
          payload: { n: from + i },
        }));
        await utils.addJobs(jobs);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, send));
  },
  async work({ slots }: { slots: number }) {
    handled = 0;
    target = Number.POSITIVE_INFINITY;
    runner = await run({
      preset: {
        extends: [WorkerPreset],
        worker: {
          connectionString,
          concurrentJobs: slots,
          maxPoolSize: POOL,
          localQueue: { size: LOCAL_QUEUE },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
          logger,
        },
      },
      noHandleSignals: true,
      taskList: {
        step(payload) {
          arrived((payload as { n: number }).n);
          if (++handled >= target) reached();
        },
      },
    });
  },
  untilHandled(count: number) {
    if (handled >= count) return;
    target = count;
    return new Promise<void>((resolve) => {
      reached = resolve;
    });
  },
  /** To the start of the handler: no client is told of the end. */
  async latency(count: number) {
    const times: number[] = [];
    for (let n = 0; n < count; n++) {
      const startedAt = performance.now();
      const here = new Promise<void>((resolve) => {
        arrived = (arrivedN) => arrivedN === n && resolve();
      });
      await utils.addJob("step", { n });
      await here;
      times.push(performance.now() - startedAt);
    }
    return times;
  },
  async rest() {
    await runner?.stop();
    runner = undefined;
  },
  async stop() {
    await runner?.stop();
    await utils.release();
  },
});
