import { Agent } from "node:http";
import { Agent as SecureAgent } from "node:https";
import { urlToHttpOptions } from "node:url";
import type { Interceptor, Transport } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  createConnectTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { createUnaryCalls } from "./unary-calls.ts";

export interface TransportOptions {
  /** As in "http://localhost:7400". */
  readonly url: string;
  /** Sent as a bearer token. */
  readonly apiKey?: string | undefined;
}

export interface MeshTransport extends Transport {
  /**
   * Closes every connection. A stream of which the last message was read may not have closed yet, and would keep the
   * process alive; a watch that still goes on takes up a new connection by itself.
   */
  close(): void;
}

/** Calls beyond it wait for a connection: 64 are more than one process can make use of. */
const MAX_CONNECTIONS = 64;
/** A stream that says nothing is pinged, so that a peer that vanished is noticed. */
const PING_MS = 20_000;

/**
 * Single calls go over HTTP/1.1 with keep-alive, which costs the least CPU a call, and a long poll holds up no other
 * call; streams go over HTTP/2, where one connection carries all of them, since each watch over HTTP/1.1 would hold a
 * connection of its own.
 */
export function createTransport(options: TransportOptions): MeshTransport {
  const url = readUrl(options.url);
  const baseUrl = url.href.replace(/\/$/, "");
  const agentOptions = { keepAlive: true, maxSockets: MAX_CONNECTIONS };
  const agent = url.protocol === "https:" ? new SecureAgent(agentOptions) : new Agent(agentOptions);
  // Compression costs more than a loopback does.
  const acceptCompression = isLoopback(url) ? [] : [compressionGzip, compressionBrotli];
  const { protocol, hostname, port } = urlToHttpOptions(url);
  const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: PING_MS });
  const streams = createConnectTransport({
    baseUrl,
    httpVersion: "2",
    sessionManager,
    interceptors: options.apiKey ? [bearer(options.apiKey)] : [],
    acceptCompression,
  });
  return {
    unary: createUnaryCalls({
      url,
      to: { protocol, hostname, port, agent },
      ...(options.apiKey && { authorization: `Bearer ${options.apiKey}` }),
      acceptCompression,
    }),
    stream: (...call) => streams.stream(...call),
    close() {
      agent.destroy();
      sessionManager.abort();
    },
  };
}

export function bearer(apiKey: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${apiKey}`);
    return next(request);
  };
}

function readUrl(text: string): URL {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new TypeError(`url must be such as "http://localhost:7400", not ${JSON.stringify(text)}`);
  }
  return url;
}

function isLoopback(url: URL): boolean {
  return ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname);
}
