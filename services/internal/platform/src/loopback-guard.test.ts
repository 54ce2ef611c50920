import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { silentLog } from "./log.ts";
import { assertSafeListen, createLoopbackGuard } from "./loopback-guard.ts";
import { createServer, type Server } from "./one-port-server.ts";

let callCount = 0;
const server: Server = createServer({
  host: "127.0.0.1",
  port: 0,
  interceptors: [],
  log: silentLog,
  guard: createLoopbackGuard(() => server.address().port),
  routes: (router) =>
    router.service(RunService, {
      startRun: () => {
        callCount++;
        return {};
      },
    }),
});
beforeAll(() => server.start());
afterAll(() => server.stop());
beforeEach(() => {
  callCount = 0;
});

const PATH = "/runmesh.run.v1.RunService/StartRun";

/** A real request with just these headers; `host` as given. */
async function call(headers: http.OutgoingHttpHeaders): Promise<{ status: number; headers: http.IncomingHttpHeaders }> {
  const { port } = server.address();
  const request = http.request({
    host: "127.0.0.1",
    port,
    path: PATH,
    method: "POST",
    headers: { host: `127.0.0.1:${port}`, "content-type": "application/json", ...headers },
  });
  request.end("{}");
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  await once(response.resume(), "end");
  return { status: response.statusCode ?? 0, headers: response.headers };
}

test("the local names with the port are served, with an own Origin or none", async () => {
  const { port } = server.address();

  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `LOCALHOST:${port}`, `[::1]:${port}`]) {
    expect((await call({ host })).status, host).toBe(200);
  }
  expect((await call({ origin: `http://localhost:${port}`, "sec-fetch-site": "same-origin" })).status).toBe(200);
  expect(callCount).toBe(5);
});

test("another Host, Origin or site, and anything forwarded, is refused and not executed", async () => {
  const { port } = server.address();
  const refused: http.OutgoingHttpHeaders[] = [
    { host: "evil.example" },
    { host: `evil.example:${port}` },
    { host: "127.0.0.1" },
    { host: `127.0.0.1:${port + 1}` },
    { host: `localhost.evil.example:${port}` },
    { origin: "https://evil.example" },
    { origin: "null" },
    { origin: `http://localhost:${port + 1}` },
    { origin: `https://localhost:${port}` },
    { "sec-fetch-site": "cross-site" },
    { "sec-fetch-site": "same-site" },
    { forwarded: "for=10.0.0.1" },
    { "x-forwarded-for": "10.0.0.1" },
    { "x-forwarded-host": `localhost:${port}` },
  ];

  for (const headers of refused) {
    const answer = await call(headers);
    expect(answer.status, JSON.stringify(headers)).toBe(403);
    expect(Object.keys(answer.headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
  }
  expect(callCount).toBe(0);
});

test("the authority of HTTP/2 is checked as the Host is", async () => {
  const { url } = server.address();
  const session = http2.connect(url);
  const status = async (authority: string) => {
    const stream = session.request({
      ":method": "POST",
      ":path": PATH,
      ":authority": authority,
      "content-type": "application/json",
    });
    stream.end("{}");
    const [headers] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
    await once(stream.resume(), "close");
    return headers[":status" as never];
  };

  expect(await status("evil.example")).toBe(403);
  expect(await status(url.slice("http://".length))).toBe(200);
  expect(callCount).toBe(1);
  session.close();
});

test("only loopback is listened on without authentication", () => {
  for (const host of ["127.0.0.1", "127.0.0.9", "::1", "[::1]", "localhost"]) assertSafeListen(host, false);
  for (const host of ["0.0.0.0", "::", "", "10.0.0.1", "mesh.example", "127.0.0.1.evil.example"]) {
    expect(() => assertSafeListen(host, false), host).toThrow(expect.objectContaining({ reason: "FORBIDDEN" }));
    assertSafeListen(host, true);
  }
});
