import { connect, MeshError, RunFailedError } from "@runmesh/client";
import { packing } from "./packing.ts";

const mesh = connect({ url: process.env.RUNMESH_URL ?? "http://127.0.0.1:7400" });

const run = await mesh.start(packing, { sku: "lamp" }, { idempotencyKey: "order-7", labels: { shop: "north" } });
for await (const event of run.watch()) console.log(event.sequence, event.type, event.task?.key ?? "");
const { parcel } = await run.result();
console.log(parcel);

try {
  await (await mesh.start(packing, { sku: "sold-out" })).result();
} catch (error) {
  if (!(error instanceof RunFailedError)) throw error;
  console.log(`${error.state}: ${error.taskKey} failed with ${error.errorType}`);
}

try {
  await mesh.startByName("packing", { sku: "lamp" }, { version: 99 });
} catch (error) {
  if (!(error instanceof MeshError)) throw error;
  console.log(`${error.reason}: ${error.advice}`);
}

const started = await mesh.startMany(packing, [{ input: { sku: "chair" } }, { input: { sku: "desk" } }]);
for (const item of started) {
  if (item.ok) console.log((await item.run.result()).parcel);
  else console.log(item.error.reason);
}
mesh.close();
