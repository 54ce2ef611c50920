/** Server, worker and client of the mesh in one process, over its port all the same. */
import { connect, type Mesh } from "@runmesh/client";
import { type Standalone, startStandalone } from "@runmesh/standalone/standalone";
import { type BenchWorker, startBenchWorker } from "../bench-worker.ts";
import { serveCalls } from "../serve-calls.ts";
import * as workloads from "../workloads.ts";

let server: Standalone;
let worker: BenchWorker;
let mesh: Mesh;

serveCalls({
  async start({ databaseUrl, slots }: { databaseUrl: string; slots: number }) {
    server = await startStandalone({ databaseUrl, port: 0, logLevel: "warn" });
    worker = await startBenchWorker({ url: server.url, slots });
    mesh = connect({ url: server.url });
  },
  fanOut: (width: number) => workloads.runFanOut(mesh, width),
  latency: (count: number) => workloads.measureLatency(mesh, count),
  async stop() {
    mesh.close();
    await worker.stop();
    await server.stop();
  },
});
