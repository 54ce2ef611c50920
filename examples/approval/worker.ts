import { createWorker } from "@runmesh/worker";
import { approveHandler, shipHandler } from "./handlers.ts";

const url = process.env.RUNMESH_URL ?? "http://127.0.0.1:7400";
await createWorker({ url, handlers: [approveHandler, shipHandler], stopOn: ["SIGINT"] }).start();
console.log("waiting for approvals");
