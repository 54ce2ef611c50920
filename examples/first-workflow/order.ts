import { connect, defineTask, defineWorkflow } from "@runmesh/client";
import { createWorker } from "@runmesh/worker";
import { z } from "zod";

const url = process.env.RUNMESH_URL ?? "http://127.0.0.1:7400";

const charge = defineTask({
  name: "charge",
  input: z.object({ orderId: z.string(), cents: z.number().int() }),
  output: z.object({ chargeId: z.string() }),
  retry: { maxAttempts: 5, nonRetryable: ["CardDeclined"] },
  timeout: "30s",
});
const ship = defineTask({
  name: "ship",
  input: z.object({ chargeId: z.string() }),
  output: z.object({ tracking: z.string() }),
});
const order = defineWorkflow({
  name: "order",
  input: z.object({ id: z.string(), cents: z.number().int() }),
  build(w) {
    const paid = w.task("charge", charge, { orderId: w.input.id, cents: w.input.cents });
    const sent = w.task("ship", ship, { chargeId: paid.output.chargeId });
    return { tracking: sent.output.tracking };
  },
});

const handlers = [
  charge.handle(async ({ orderId }, { fence }) => ({ chargeId: `C-${orderId}-${fence}` })),
  ship.handle(async ({ chargeId }) => ({ tracking: `T-${chargeId}` })),
];
await createWorker({ url, handlers, workflows: [order], stopOn: ["SIGINT", "SIGTERM"] }).start();

const run = await connect({ url }).start(order, { id: "7", cents: 1299 }, { idempotencyKey: "order-7" });
const { tracking } = await run.result();
console.log(`Run ${run.id} shipped as ${tracking}. The worker goes on until Ctrl-C.`);
