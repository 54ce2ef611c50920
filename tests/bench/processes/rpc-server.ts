/** Two servers of one method without work behind it: plain calls served by our own handler, and by the library's. */
import type { ConnectRouter } from "@connectrpc/connect";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { silentLog } from "@runmesh/platform/log";
import { createServer } from "@runmesh/platform/one-port-server";
import { errorInterceptor } from "@runmesh/platform/rpc-errors";
import { serveCalls } from "../serve-calls.ts";

const implementation = { getRun: ({ runId }: { runId: bigint }) => ({ run: { id: runId, workflow: "bench" } }) };
const interceptors = [errorInterceptor({ log: silentLog })];

async function start(routes: (router: ConnectRouter) => void): Promise<string> {
  const server = createServer({ host: "127.0.0.1", port: 0, log: silentLog, interceptors, routes });
  await server.start();
  return server.address().url;
}

serveCalls({
  async start() {
    const own = await start((router) => router.service(RunService, implementation));
    // A service with options of its own is left to the library.
    const library = await start((router) => router.service(RunService, implementation, {}));
    return { own, library };
  },
  cpuMicros() {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
});
