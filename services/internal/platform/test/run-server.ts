import { ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { silentLog } from "../src/log.ts";
import { createServer, type Server, type ServerOptions } from "../src/one-port-server.ts";
import { errorInterceptor } from "../src/rpc-errors.ts";

function routes(router: ConnectRouter): void {
  router.service(RunService, {
    getRun: (request) => {
      if (request.runId === 0n) throw new MeshError("NOT_FOUND", "there is no run 0");
      if (request.runId < 0n) throw new Error("password=hunter2");
      return { run: { id: request.runId } };
    },
    startRun: () => ({}),
    async *watchRun(request) {
      for (let i = 1n; i <= 3n; i++) yield { change: { sequence: i } };
      if (request.runId === 0n) throw new MeshError("SLOW_CONSUMER", "too slow", { lastSequence: 3n });
    },
  });
}

/** A server of runs that is silent; given interceptors or routes take the place of its own. */
export function create(options: Partial<ServerOptions> = {}): Server {
  const interceptors = [errorInterceptor({ log: silentLog })];
  return createServer({ host: "127.0.0.1", port: 0, routes, interceptors, log: silentLog, ...options });
}

/** What a call fails with that must fail. */
export async function failureOf(call: Promise<unknown>): Promise<ConnectError> {
  return call.then(
    () => Promise.reject(new Error("the call was answered")),
    (error: unknown) => ConnectError.from(error),
  );
}
