import { once } from "node:events";
import * as http from "node:http";
import * as https from "node:https";
import type { AddressInfo } from "node:net";
import { Code, ConnectError, type ConnectRouter, createClient, type Interceptor } from "@connectrpc/connect";
import { compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, onTestFinished, test, vi } from "vitest";
import { CERTIFICATE, KEY } from "../test/certificate.ts";
import { createUnaryCalls, type UnaryCallsOptions } from "./unary-calls.ts";

type Handler = http.RequestListener;

async function listen(server: http.Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function connect(url: string, options: Partial<UnaryCallsOptions> = {}) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });
  onTestFinished(() => agent.destroy());
  const { protocol, hostname, port } = new URL(url);
  const calls = { url: new URL(url), to: { protocol, hostname, port, agent }, acceptCompression: [], ...options };
  const unary = createUnaryCalls(calls);
  return createClient(RunService, { unary, stream: () => Promise.reject(new Error("no streams")) });
}

const serveRoutes = async (routes: (router: ConnectRouter) => void) =>
  `http://127.0.0.1:${await listen(http.createServer(connectNodeAdapter({ routes })))}`;
const serveRaw = async (handler: Handler) => `http://127.0.0.1:${await listen(http.createServer(handler))}`;

const failureOf = (call: Promise<unknown>): Promise<ConnectError> =>
  call.then(
    () => Promise.reject(new Error("the call was answered")),
    (error: unknown) => error as ConnectError,
  );

test("a call says what the protocol asks for, and a path of the URL goes before the method's", async () => {
  const requests: http.IncomingMessage[] = [];
  const url = await serveRaw((request, response) => {
    requests.push(request);
    response.writeHead(200, { "content-type": "application/proto" }).end();
  });

  await connect(`${url}/behind/`, { authorization: "Bearer key" }).getRun({ runId: 7n }, { timeoutMs: 2_500 });

  expect(requests[0]).toMatchObject({ method: "POST", url: "/behind/runmesh.run.v1.RunService/GetRun" });
  expect(requests[0]!.headers).toMatchObject({
    host: url.slice("http://".length),
    authorization: "Bearer key",
    "content-type": "application/proto",
    "content-length": "2",
    "connect-protocol-version": "1",
    "connect-timeout-ms": "2500",
  });
});

test("fields of bytes are plain arrays, and no Buffers", async () => {
  const inputJson = new TextEncoder().encode('{"n":1}');
  const url = await serveRoutes(
    (router) => void router.service(RunService, { getRun: () => ({ run: { inputJson } }) }),
  );

  const { run } = await connect(url).getRun({});

  expect(run?.inputJson).toEqual(inputJson);
  expect(Buffer.isBuffer(run?.inputJson)).toBe(false);
});

test("interceptors see the call and its answer, outermost first, and may change both", async () => {
  const order: string[] = [];
  const note =
    (name: string): Interceptor =>
    (next) =>
    async (request) => {
      order.push(`${name} ${request.url.split("/").at(-1)} ${request.header.get("x-given")} ${request.signal.aborted}`);
      request.header.set(`x-${name}`, "yes");
      const response = await next(request);
      order.push(`${name} after ${response.header.get("x-seen")} ${response.trailer.get("x-last")}`);
      return response;
    };
  const url = await serveRoutes(
    (router) =>
      void router.service(RunService, {
        getRun(_, { requestHeader, responseHeader, responseTrailer }) {
          responseHeader.set("x-seen", `${requestHeader.get("x-outer")} ${requestHeader.get("x-inner")}`);
          responseTrailer.set("x-last", "1");
          return { run: { id: 7n } };
        },
      }),
  );

  const client = connect(url, { interceptors: [note("outer"), note("inner")] });
  const { run } = await client.getRun({}, { headers: { "x-given": "g" } });

  expect(run?.id).toBe(7n);
  expect(order).toEqual([
    "outer GetRun g false",
    "inner GetRun g false",
    "inner after yes yes 1",
    "outer after yes yes 1",
  ]);
});

test.each([
  { who: "a call", interceptors: [] },
  { who: "an intercepted call", interceptors: [((next) => (request) => next(request)) satisfies Interceptor] },
])("$who ends with its signal's reason, or DEADLINE_EXCEEDED, and the server sees the caller leave", async (given) => {
  const arrived = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  const url = await serveRaw((_, response) => {
    arrived.resolve();
    response.once("close", left.resolve);
  });
  const client = connect(url, given);
  const controller = new AbortController();
  const aborted = failureOf(client.getRun({}, { signal: controller.signal }));
  await arrived.promise;

  controller.abort(new ConnectError("mine", Code.Aborted));
  const late = await failureOf(client.getRun({}, { timeoutMs: 30 }));
  const early = await failureOf(client.getRun({}, { signal: AbortSignal.abort() }));

  expect(await aborted).toMatchObject({ code: Code.Aborted, rawMessage: "mine" });
  expect(late).toMatchObject({ code: Code.DeadlineExceeded, rawMessage: "the operation timed out" });
  expect(early).toMatchObject({ code: Code.Canceled });
  await left.promise;
});

test("a call that is over leaves no listener at its caller's signal, and no timer", async () => {
  const url = await serveRaw(
    (_, response) => void response.writeHead(200, { "content-type": "application/proto" }).end(),
  );
  const { signal } = new AbortController();
  let listeners = 0;
  const counted = new Proxy(signal, {
    get(target, name) {
      if (name === "addEventListener") listeners++;
      if (name === "removeEventListener") listeners--;
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });

  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());

  await connect(url).getRun({}, { signal: counted, timeoutMs: 3_600_000 });

  expect(listeners).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test("a mesh that is away, or a connection that breaks, is UNAVAILABLE with the cause", async () => {
  const hangsUp = await serveRaw((request) => void request.socket.destroy());
  const breaksOff = await serveRaw((_, response) => {
    response.writeHead(200, { "content-type": "application/proto", "content-length": "100" });
    response.write("half", () => response.destroy());
  });

  const away = await failureOf(connect("http://127.0.0.1:1").getRun({}));
  const refused = await failureOf(connect(hangsUp).getRun({}));
  const broken = await failureOf(connect(breaksOff).getRun({}));

  expect(away).toMatchObject({ code: Code.Unavailable, cause: { code: "ECONNREFUSED" } });
  expect(refused).toMatchObject({ code: Code.Unavailable, cause: { code: "ECONNRESET" } });
  expect(broken).toMatchObject({ code: Code.Unavailable, cause: { code: "ECONNRESET" } });
});

test("an answer that switches to another protocol is UNAVAILABLE", async () => {
  const url = await serveRaw((request) => {
    request.socket.end("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
  });

  expect(await failureOf(connect(url).getRun({}))).toMatchObject({ code: Code.Unavailable });
});

test("a call that goes out on a kept connection as the server closes it is UNAVAILABLE, and sent once", async () => {
  const sockets: unknown[] = [];
  const url = await serveRaw((request, response) => {
    sockets.push(request.socket);
    if (sockets.length === 2) request.socket.destroy();
    else response.writeHead(200, { "content-type": "application/proto" }).end();
  });
  const client = connect(url);

  await client.getRun({});
  const failure = await failureOf(client.getRun({}));

  expect(failure).toMatchObject({ code: Code.Unavailable, cause: { code: "ECONNRESET" } });
  expect(sockets).toHaveLength(2);
  expect(sockets[1]).toBe(sockets[0]);
});

test("what is no answer of the protocol is an error by its status or type", async () => {
  const answers: [number, string, string][] = [
    [502, "text/html", "<h1>Bad gateway</h1>"],
    [503, "application/json", "not JSON"],
    [200, "text/html", "<h1>Welcome</h1>"],
    [200, "application/json", "{}"],
    [200, "application/proto", "\xff\xff"],
  ];
  const url = await serveRaw((_, response) => {
    const [status, type, body] = answers.shift()!;
    response.writeHead(status, { "content-type": type, "x-request-id": "r" }).end(body);
  });
  const client = connect(url);

  const codes = [];
  while (answers.length > 0) codes.push((await failureOf(client.getRun({}))).code);

  expect(codes).toEqual([Code.Unavailable, Code.Unavailable, Code.Unknown, Code.Internal, Code.Internal]);
});

test("a compressed answer is read where the caller takes that encoding, an error as well", async () => {
  const accepted: unknown[] = [];
  const long = "x".repeat(5_000);
  const adapter = connectNodeAdapter({
    acceptCompression: [compressionGzip],
    routes: (router) =>
      void router.service(RunService, {
        getRun({ runId }) {
          if (runId === 0n) throw new ConnectError(long, Code.NotFound);
          return { run: { id: runId, workflow: long } };
        },
      }),
  });
  const url = await serveRaw((request, response) => {
    accepted.push(request.headers["accept-encoding"]);
    adapter(request, response);
  });
  const client = connect(url, { acceptCompression: [compressionGzip] });
  let encoding: string | null | undefined;

  const { run } = await client.getRun(
    { runId: 1n },
    { onHeader: (header) => (encoding = header.get("content-encoding")) },
  );
  const missing = await failureOf(client.getRun({ runId: 0n }));

  expect(run?.workflow).toBe(long);
  expect(encoding).toBe("gzip");
  expect(missing).toMatchObject({ code: Code.NotFound, rawMessage: long });
  expect(accepted).toEqual(["gzip", "gzip"]);
});

test("a long poll holds up no other call, and connections are reused", async () => {
  const sockets = new Set<unknown>();
  const released = Promise.withResolvers<void>();
  const routes = (router: ConnectRouter) =>
    void router.service(RunService, {
      async getRun({ waitMs }) {
        if (waitMs > 0) await released.promise;
        return {};
      },
    });
  const server = http.createServer(connectNodeAdapter({ routes }));
  server.on("connection", (socket) => sockets.add(socket));
  const client = connect(`http://127.0.0.1:${await listen(server)}`);
  const poll = client.getRun({ waitMs: 60_000 });

  for (let i = 0; i < 10; i++) await client.getRun({});
  released.resolve();
  await poll;

  expect(sockets.size).toBe(2);
});

test("an https URL is called over TLS", async () => {
  const server = https.createServer({ key: KEY, cert: CERTIFICATE }, (_, response) => {
    response.writeHead(200, { "content-type": "application/proto" }).end();
  });
  const port = await listen(server);
  const agent = new https.Agent({ keepAlive: true, ca: CERTIFICATE });
  onTestFinished(() => agent.destroy());
  const to = { protocol: "https:", hostname: "localhost", port, agent };

  const answer = await connect(`https://localhost:${port}`, { to }).getRun({});

  expect(answer.run).toBeUndefined();
});
