import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { NodeRequest } from "./one-port-server.ts";

/** Connections on which the last call is of no use without its caller. */
const needingTheirCaller = new WeakSet<Socket>();

/** How long a call may still take whose caller has ended its side. */
export const HALF_CLOSED_TIMEOUT_MS = 5_000;

/** `http.Server` knows it, and neither its documentation nor its types do. */
type WithHalfOpen = Server & { httpAllowHalfOpen: boolean };

/**
 * A client may end its side of an HTTP/1.1 connection once its request is sent, as `nc -N` does, and still read the answer.
 * One that left or was killed looks the same. So it is answered if the answer comes soon, and then taken for gone. Calls
 * that need their caller end at once: streams, and what waits to give the caller something that would be lost with it.
 */
export function allowHalfClose(server: Server): void {
  (server as WithHalfOpen).httpAllowHalfOpen = true;
  server.on("connection", (socket: Socket) => {
    socket.allowHalfOpen = true;
    socket.once("end", () => {
      if (needingTheirCaller.has(socket)) socket.destroySoon();
      else endLater(socket);
    });
  });
}

function endLater(socket: Socket): void {
  const timer = setTimeout(() => socket.destroySoon(), HALF_CLOSED_TIMEOUT_MS);
  socket.once("close", () => clearTimeout(timer));
}

/** To be said of each call. Over HTTP/2 a caller ends a request, and leaves, in ways that differ. */
export function tellOfNeed({ socket, httpVersionMajor }: NodeRequest, needsCaller: boolean): void {
  if (httpVersionMajor !== 1) return;
  if (needsCaller) needingTheirCaller.add(socket);
  else needingTheirCaller.delete(socket);
}
