// The same in plain JavaScript.
import { connect, defineTask, defineWorkflow } from "@runmesh/client";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { createWorker } from "@runmesh/worker";
import { z } from "zod";

const url = process.env.RUNMESH_URL;
const queue = process.env.QUEUE;
const number = z.object({ n: z.number() });

const double = defineTask({ name: "double", queue, input: number, output: number });
const twice = defineWorkflow({
  name: `twice-${queue}`,
  input: number,
  build(w) {
    const once = w.task("once", double, { n: w.input.n });
    return { n: w.task("again", double, { n: once.output.n }).output.n };
  },
});

const handlers = [double.handle(({ n }, ctx) => ({ n: ctx.fence > 0n ? n * 2 : 0 }))];
const worker = createWorker({ url, queues: [queue], handlers, workflows: [twice] });
await worker.start();
const mesh = connect({ url });
const run = await mesh.start(twice, { n: 5 });
const result = await run.result();
await worker.stop();
mesh.close();
console.log(JSON.stringify({ n: result.n, service: RunService.typeName, node: process.version }));
