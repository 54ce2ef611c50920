import { once } from "node:events";
import * as net from "node:net";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, onTestFinished, test, vi } from "vitest";
import { exchange } from "../test/raw-http.ts";
import { HALF_CLOSED_TIMEOUT_MS } from "./half-close.ts";
import { silentLog } from "./log.ts";
import { createServer, type ServerOptions } from "./one-port-server.ts";

const SERVICE = "/runmesh.run.v1.RunService";
const envelope = (json: string) => `\0\0\0\0${String.fromCharCode(json.length)}${json}`;

/** A server whose `getRun` and `watchRun` wait until they are let go, or their signal aborts. */
async function start(options: Partial<ServerOptions> = {}) {
  const entered = Promise.withResolvers<void>();
  const free = Promise.withResolvers<"answered">();
  const ended = Promise.withResolvers<"answered" | "aborted">();
  const wait = async (signal: AbortSignal) => {
    entered.resolve();
    const aborted = once(signal, "abort").then(() => "aborted" as const);
    ended.resolve(await Promise.race([free.promise, aborted]));
  };
  const server = createServer({
    host: "127.0.0.1",
    port: 0,
    interceptors: [],
    log: silentLog,
    routes: (router) =>
      void router.service(RunService, {
        async getRun({ runId }, { signal }) {
          await wait(signal);
          return { run: { id: runId } };
        },
        async *watchRun(_, { signal }) {
          yield {};
          await wait(signal);
        },
      }),
    ...options,
  });
  await server.start();
  onTestFinished(() => server.stop());
  return {
    port: server.address().port,
    entered: entered.promise,
    letGo: () => free.resolve("answered"),
    ended: ended.promise,
  };
}

/** The server answers others that come later, so it has heard of what came before. */
async function hearAll(port: number): Promise<void> {
  for (let i = 0; i < 2; i++) await exchange("1.1", `http://127.0.0.1:${port}`, { path: "/", headers: {} });
}

/** Sends a request, after what is to go before it, and the end of the connection in one; answers all that comes back. */
function send(port: number, method: string, type: string, body: string, before = "", length = body.length) {
  const head = [`POST ${SERVICE}/${method} HTTP/1.1`, `host: localhost:${port}`, `content-type: ${type}`];
  const request = `${before}${head.join("\r\n")}\r\ncontent-length: ${length}\r\n\r\n${body}`;
  const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true }).setEncoding("latin1");
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk;
  });
  socket.end(request, "latin1");
  return once(socket, "end").then(() => {
    socket.destroy();
    return answer;
  });
}

test.each([
  { protocol: "Connect", type: "application/json", body: '{"runId":"7"}' },
  { protocol: "gRPC-Web", type: "application/grpc-web+json", body: envelope('{"runId":"7"}') },
])("who ends its side of the connection after a $protocol call is answered", async ({ type, body }) => {
  const { port, entered, letGo, ended } = await start();

  const answer = send(port, "GetRun", type, body);
  await entered;
  await hearAll(port);
  letGo();

  expect(await answer).toContain('{"run":{"id":"7"}}');
  expect(await ended).toBe("answered");
});

test("who ends its side of the connection is taken for gone when no answer has come after five seconds", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const { port, entered, ended } = await start();

  const answer = send(port, "GetRun", "application/json", "{}");
  await entered;
  await expect.poll(() => vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(HALF_CLOSED_TIMEOUT_MS);

  expect(await ended).toBe("aborted");
  expect(await answer).toBe("");
});

test("who ends its side of the connection has left a stream", async () => {
  const { port, entered, ended } = await start();

  const answer = send(port, "WatchRun", "application/connect+json", envelope("{}"));
  await entered;

  expect(await ended).toBe("aborted");
  expect(await answer).toMatch(/^HTTP\/1\.1 200 OK/);
});

test("who ends its side of the connection has left a call that needs its caller", async () => {
  const { port, entered, ended } = await start({ needingCaller: [RunService.method.getRun] });

  const answer = send(port, "GetRun", "application/json", "{}");
  await entered;

  expect(await ended).toBe("aborted");
  expect(await answer).toBe("");
});

test("a connection is for other calls again after one that needs its caller", async () => {
  const { port, entered, letGo, ended } = await start({ needingCaller: [RunService.method.startRun] });

  const before = `POST ${SERVICE}/StartRun HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n`;
  const answer = send(port, "GetRun", "application/json", "{}", before);
  await entered;
  await hearAll(port);
  letGo();

  expect(await answer).toContain('{"run":{}}');
  expect(await ended).toBe("answered");
});

test("who ends its side of the connection amid a request is told that it is none", async () => {
  const { port } = await start();

  expect(await send(port, "GetRun", "application/json", "{", undefined, 2)).toMatch(/^HTTP\/1\.1 400 Bad Request/);
});
