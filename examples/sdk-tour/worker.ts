import { createWorker } from "@runmesh/worker";
import { handlers } from "./handlers.ts";
import { packing } from "./packing.ts";

const worker = createWorker({
  url: process.env.RUNMESH_URL ?? "http://127.0.0.1:7400",
  handlers,
  workflows: [packing],
  slots: 20,
  stopOn: ["SIGINT", "SIGTERM"],
});
await worker.start();
console.log("Serving reserve, notify and pack until Ctrl-C.");
