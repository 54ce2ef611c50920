/** A worker whose handler blocks its event loop for three leases, then stops. Its argument is the mesh's URL. */
import { defineTask } from "@runmesh/client";
import { createWorker } from "@runmesh/worker";
import { z } from "zod";

const block = defineTask({ name: "block", input: z.number(), output: z.string() });
const blockMs = new Int32Array(new SharedArrayBuffer(4));
const worker = createWorker({
  url: process.argv[2]!,
  leaseMs: 1_000,
  slots: 1,
  prefetch: 3,
  handlers: [
    block.handle((ms) => {
      Atomics.wait(blockMs, 0, 0, ms);
      return "done";
    }),
  ],
});
await worker.start();
process.once("SIGTERM", () => void worker.stop());
