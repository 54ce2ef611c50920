/**
 * The thread that keeps a worker's session and leases, apart from user code: a handler that blocks the event loop
 * keeps its lease (DESIGN §8). It is bundled into `generated/renewal-thread.ts`, so that bundlers of people's own need
 * not find a second file.
 */
import { Agent } from "node:http";
import { Agent as SecureAgent } from "node:https";
import { workerData } from "node:worker_threads";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { bearer } from "@runmesh/client/internal";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { createLeaseKeeper, type LeaseKeeper } from "./lease-keeper.ts";
import type { FromThread, ThreadOptions, ToThread } from "./renewal-protocol.ts";
import { createSessionStream } from "./session-stream.ts";

const { options, port } = workerData as { options: ThreadOptions; port: import("node:worker_threads").MessagePort };
const agent = options.url.startsWith("https:") ? new SecureAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
const client = createClient(
  LeaseService,
  createConnectTransport({
    baseUrl: options.url.replace(/\/$/, ""),
    httpVersion: "1.1",
    nodeOptions: { agent },
    interceptors: options.apiKey ? [bearer(options.apiKey)] : [],
    acceptCompression: [],
  }),
);
const stop = new AbortController();
const post = (message: FromThread) => port.postMessage(message);
const stream = createSessionStream(client, options, post, () => keeper);
const keeper: LeaseKeeper = createLeaseKeeper(client, new BigInt64Array(options.shared), post, (id) =>
  stream.closed(id),
);

port.on("message", (message: ToThread) => {
  switch (message.kind) {
    case "hold":
      return keeper.hold(message);
    case "drop":
      return keeper.drop(message.fences);
    case "tell":
      return keeper.tell(message);
    case "closed":
      return stream.closed(message.sessionId);
    case "settle":
      return keeper.settle();
    case "close":
      keeper.end();
      stop.abort();
      agent.destroy();
      port.close();
  }
});
void stream.run(stop.signal);
