import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface TcpProxy extends AsyncDisposable {
  readonly url: string;
  /** Breaks every connection; new ones pass. */
  cut(): void;
}

/**
 * A proxy in front of a mesh, whose connections a test can break. It listens at the mesh's port on the other loopback
 * address: a mesh without authentication answers to its own port only.
 */
export async function startTcpProxy(target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const server = createServer((inbound) => {
    const outbound = connect(Number(port), hostname);
    for (const socket of [inbound, outbound]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        inbound.destroy();
        outbound.destroy();
      });
    }
    inbound.pipe(outbound).pipe(inbound);
  });
  server.listen(Number(port), "::1");
  await once(server, "listening");
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://[::1]:${port}`,
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      server.close();
      await once(server, "close");
    },
  };
}
