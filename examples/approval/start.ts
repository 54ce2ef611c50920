import { connect } from "@runmesh/client";
import { approval } from "./approval.ts";

const mesh = connect({ url: process.env.RUNMESH_URL ?? "http://127.0.0.1:7400" });

const run = await mesh.start(approval, { order: "o-7", cents: 1299 }, { idempotencyKey: "o-7" });
await mesh.run(run.id).signal("decision", { by: "ada", yes: true });

const { state, tracking } = await run.result();
console.log(state, tracking);
mesh.close();
