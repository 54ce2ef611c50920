// Runs in an empty project that has the packed packages, as it is and bundled.
import { connect, defineTask, defineWorkflow, type TaskContext } from "@runmesh/client";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { createWorker } from "@runmesh/worker";
import { z } from "zod";

const url: string = process.env.RUNMESH_URL ?? "";
const queue: string = process.env.QUEUE ?? "default";

const double = defineTask({
  name: "double",
  queue,
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
});
const twice = defineWorkflow({
  name: `twice-${queue}`,
  input: z.object({ n: z.number() }),
  build(w) {
    const once = w.task("once", double, { n: w.input.n });
    return { n: w.task("again", double, { n: once.output.n }).output.n };
  },
});

const handlers = [double.handle(({ n }, ctx: TaskContext) => ({ n: ctx.fence > 0n ? n * 2 : 0 }))];
const worker = createWorker({ url, queues: [queue], handlers, workflows: [twice] });
await worker.start();
const mesh = connect({ url });
const run = await mesh.start(twice, { n: 5 });
const result = await run.result();
await worker.stop();
mesh.close();
console.log(JSON.stringify({ n: result.n, service: RunService.typeName, node: process.version }));
