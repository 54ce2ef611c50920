/** The worker of the mesh, as a process of its own. */
import { type BenchWorker, startBenchWorker, type WorkerLoad } from "../bench-worker.ts";
import { serveCalls } from "../serve-calls.ts";

let worker: BenchWorker;

serveCalls({
  async start(load: WorkerLoad) {
    worker = await startBenchWorker(load);
  },
  untilHandled: (count: number) => worker.untilHandled(count),
  stop: () => worker.stop(),
});
