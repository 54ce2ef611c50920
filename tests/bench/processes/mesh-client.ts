/** The client of the mesh, as a process of its own. */
import { connect, type Mesh } from "@runmesh/client";
import { type Backlog, fill, startTasks } from "../backlog.ts";
import { type LimitLoad, measureLimitedChains, registerLimitedChains } from "../limited-chains.ts";
import { serveCalls } from "../serve-calls.ts";
import * as workloads from "../workloads.ts";

let mesh: Mesh;

serveCalls({
  async start(url: string) {
    mesh = connect({ url });
    await mesh.register(workloads.single);
    await mesh.register(workloads.chain);
    await registerLimitedChains(mesh);
  },
  submit: (load: workloads.SubmitLoad) => workloads.submit(mesh, load),
  chains: (load: workloads.ChainLoad) => workloads.runChains(mesh, load),
  fanOut: (width: number) => workloads.runFanOut(mesh, width),
  latency: (count: number) => workloads.measureLatency(mesh, count),
  limits: (load: LimitLoad) => measureLimitedChains(mesh, load),
  fill: (backlog: Backlog) => fill(mesh, backlog),
  startTasks: (count: number) => startTasks(mesh, count),
  stop: () => mesh.close(),
});
