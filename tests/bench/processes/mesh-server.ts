/** The server of the mesh, as a process of its own. */
import { type Standalone, startStandalone } from "@runmesh/standalone/standalone";
import { serveCalls } from "../serve-calls.ts";
import { meterStatements } from "../statement-meter.ts";

const statements = meterStatements();
let mesh: Standalone;

serveCalls({
  async start(databaseUrl: string) {
    mesh = await startStandalone({ databaseUrl, port: 0, logLevel: "warn" });
    return mesh.url;
  },
  relayed: () => mesh.relayed(),
  doctor: () => mesh.doctor(),
  /** Since the last time it was asked. */
  statements,
  stop: () => mesh.stop(),
});
