import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer, type Socket } from "node:net";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

export interface RoutesServer extends AsyncDisposable {
  readonly url: string;
}

/** Serves a test's routes over HTTP/1.1 and HTTP/2 on one port, as the mesh does. */
export async function serveRoutes(routes: (router: ConnectRouter) => void): Promise<RoutesServer> {
  const handler = connectNodeAdapter({ routes });
  const http1 = createHttpServer(handler);
  const http2 = createHttp2Server(handler);
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    socket.once("readable", () => {
      const first: Buffer | null = socket.read();
      if (first === null) return;
      socket.unshift(first);
      (first.toString("latin1", 0, 3) === "PRI" ? http2 : http1).emit("connection", socket);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
