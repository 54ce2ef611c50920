import { connect } from "@runmesh/client";
import { restock } from "./limits.ts";

const mesh = connect({ url: process.env.RUNMESH_URL ?? "http://127.0.0.1:7400" });

const restocked = await mesh.start(restock, { shop: "north", sku: "lamp" });
console.log((await restocked.result()).shelf);

const { schedule } = await mesh.schedules.putSchedule({
  schedule: {
    name: "restock-north",
    cron: "30 2 * * *",
    timeZone: "Europe/Berlin",
    workflow: "restock",
    inputPayload: { case: "inputJson", value: Buffer.from(JSON.stringify({ shop: "north", sku: "lamp" })) },
  },
});
console.log(schedule?.upcomingTimes.length);
mesh.close();
