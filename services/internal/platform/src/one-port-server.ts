import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import * as net from "node:net";
import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, type Interceptor } from "@connectrpc/connect";
import type { Compression } from "@connectrpc/connect/protocol";
import type { MeshError } from "@runmesh/domain/errors";
import { allowHalfClose } from "./half-close.ts";
import type { Log } from "./log.ts";
import { createRequestHandler } from "./request-handler.ts";
import { BODY_TIMEOUT_MS } from "./rpc-limits.ts";
import type { Service } from "./service.ts";

export type NodeRequest = http.IncomingMessage | http2.Http2ServerRequest;
export type NodeResponse = http.ServerResponse | http2.Http2ServerResponse;

/** Looks at a request before anything reads it; an error refuses it. */
export type RequestGuard = (request: NodeRequest) => MeshError | undefined;

export interface ServerOptions {
  readonly host: string;
  /** 0 takes a free one; `address()` tells which. */
  readonly port: number;
  readonly routes: (router: ConnectRouter) => void;
  /** Outermost first; begin with `errorInterceptor`. */
  readonly interceptors: readonly Interceptor[];
  readonly guard?: RequestGuard;
  /** Answers what no route takes, as the dashboard's files. Left out, such a request is answered NOT_SERVED. */
  readonly fallback?: (request: NodeRequest, response: NodeResponse) => void;
  readonly log: Log;
  /** Encodings a request may use. None by default: compression costs more than it saves on loopback. */
  readonly acceptCompression?: readonly Compression[];
  /** Unary methods whose answer is of no use when the caller has gone: they end when it ends its side of HTTP/1.1. */
  readonly needingCaller?: readonly DescMethod[];
  /** How long stop lets calls finish before it cuts their connections. Default 5 s. */
  readonly drainTimeoutMs?: number;
}

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** As in `http://127.0.0.1:7600`. */
  readonly url: string;
}

export type Server = Service & { address(): ServerAddress };

/** An HTTP/2 connection begins with `PRI `; no HTTP/1.1 method does. */
const HTTP2_PREFACE = "PRI";
const SNIFF_TIMEOUT_MS = 10_000;
const HEADER_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
const IDLE_SESSION_TIMEOUT_MS = 900_000;
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_CONCURRENT_STREAMS = 1_000;
const STREAM_WINDOW_BYTES = 1024 * 1024;
const SESSION_WINDOW_BYTES = 16 * 1024 * 1024;

/**
 * One plaintext port for HTTP/1.1 and HTTP/2 with prior knowledge, serving Connect, gRPC and gRPC-Web on both.
 * The first bytes of a connection tell which, and go back before the HTTP server sees the connection.
 */
export function createServer(options: ServerOptions): Server {
  const { log, drainTimeoutMs = 5_000 } = options;
  let running: Running | undefined;
  let last: Promise<void> = Promise.resolve();

  function inOrder(move: () => Promise<void>): Promise<void> {
    const result = last.then(move);
    last = result.catch(() => {});
    return result;
  }

  return {
    name: "server",
    start: () =>
      inOrder(async () => {
        running ??= await listen(options);
        log.info({ url: running.address.url }, "listening");
      }),
    stop: () =>
      inOrder(async () => {
        // Its address is asked for until the last call has ended: a guard compares the Host with it.
        await running?.drain(drainTimeoutMs);
        running = undefined;
      }),
    address() {
      if (running === undefined) throw new Error("the server is not started");
      return running.address;
    },
  };
}

interface Running {
  readonly address: ServerAddress;
  drain(timeoutMs: number): Promise<void>;
}

async function listen(options: ServerOptions): Promise<Running> {
  const shutdown = new AbortController();
  const sockets = new Set<net.Socket>();
  const sessions = new Set<http2.ServerHttp2Session>();
  const handle = createRequestHandler({ ...options, shutdownSignal: shutdown.signal });

  const http1 = http.createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADER_TIMEOUT_MS,
      // Behind the time that each body has: requests that no handler gets to see.
      requestTimeout: HEADER_TIMEOUT_MS + BODY_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: 5_000,
      noDelay: true,
    },
    handle,
  );
  allowHalfClose(http1);
  // The checks of slow headers and bodies begin at `listening`, which this server never reaches by itself.
  http1.emit("listening");

  const h2 = http2.createServer(
    {
      maxHeaderListPairs: 128,
      maxSessionMemory: 64,
      unknownProtocolTimeout: SNIFF_TIMEOUT_MS,
      settings: {
        maxConcurrentStreams: MAX_CONCURRENT_STREAMS,
        maxHeaderListSize: MAX_HEADER_BYTES,
        initialWindowSize: STREAM_WINDOW_BYTES,
        enablePush: false,
      },
    },
    handle,
  );
  h2.setTimeout(IDLE_SESSION_TIMEOUT_MS);
  h2.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    session.setLocalWindowSize(SESSION_WINDOW_BYTES);
    if (shutdown.signal.aborted) session.close();
  });
  h2.on("sessionError", (error) => options.log.debug({ error }, "an HTTP/2 session failed"));

  const server = net.createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    sniff(socket, http1, h2);
  });
  server.listen({ host: options.host, port: options.port });
  await once(server, "listening");

  return {
    address: readAddress(server, options.host),
    async drain(timeoutMs) {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // Not CANCELLED: whoever called has not given up, and may ask another server.
      shutdown.abort(new ConnectError("the server stops", Code.Unavailable));
      for (const session of sessions) session.close();
      http1.closeIdleConnections();
      for (const socket of sockets) if (!taken.has(socket)) socket.destroy();
      const cut = setTimeout(() => {
        options.log.warn({ connections: sockets.size }, "calls did not end in time and were cut off");
        for (const socket of sockets) socket.destroy();
      }, timeoutMs);
      // A connection kept alive becomes idle only when its last call has ended.
      const sweep = setInterval(() => http1.closeIdleConnections(), 20);
      await closed;
      clearTimeout(cut);
      clearInterval(sweep);
      http1.close();
      h2.close();
    },
  };
}

/** Sockets that an HTTP server has taken over. */
const taken = new WeakSet<net.Socket>();

/** Reads the first bytes, puts them back, and gives the connection to the server that speaks its protocol. */
function sniff(socket: net.Socket, http1: http.Server, h2: http2.Http2Server): void {
  // Kept here until it is enough: what goes back too early would be announced again at once, for ever.
  let head: Buffer = Buffer.alloc(0);
  const onGone = () => socket.destroy();
  const onReadable = () => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    const text = head.toString("latin1", 0, HTTP2_PREFACE.length);
    if (text.length < HTTP2_PREFACE.length && HTTP2_PREFACE.startsWith(text)) return;
    socket.off("readable", onReadable);
    socket.off("error", onGone);
    socket.off("end", onGone);
    socket.off("timeout", onGone);
    socket.setTimeout(0);
    taken.add(socket);
    socket.unshift(head);
    (text === HTTP2_PREFACE ? h2 : http1).emit("connection", socket);
  };
  socket.on("readable", onReadable);
  socket.on("error", onGone);
  socket.on("end", onGone);
  socket.on("timeout", onGone);
  socket.setTimeout(SNIFF_TIMEOUT_MS);
}

function readAddress(server: net.Server, host: string): ServerAddress {
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("the server listens on no port");
  return { host, port: bound.port, url: `http://${net.isIPv6(host) ? `[${host}]` : host}:${bound.port}` };
}
