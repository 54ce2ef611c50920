import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { ErrorDetailSchema, Reason } from "@runmesh/contracts/error/v1/error_pb";
import { Health, HealthCheckResponse_ServingStatus } from "@runmesh/contracts/grpc/health/v1/health_pb";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { toDefinition } from "@runmesh/testing/given";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { attachWorker } from "@runmesh/testing/mesh-worker";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: TestMesh;
beforeAll(async () => {
  mesh = await startMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

interface Options {
  readonly baseUrl: string;
  readonly httpVersion: "1.1" | "2";
  readonly useBinaryFormat: boolean;
}
const PROTOCOLS: readonly [string, (options: Options) => Transport][] = [
  ["Connect", createConnectTransport],
  ["gRPC", createGrpcTransport],
  ["gRPC-Web", createGrpcWebTransport],
];
const WAYS = PROTOCOLS.flatMap(([protocol, transport]) =>
  (["1.1", "2"] as const).flatMap((httpVersion) =>
    [true, false].map((useBinaryFormat) => ({ protocol, transport, httpVersion, useBinaryFormat })),
  ),
);

test.each(WAYS)(
  "a run is started, worked on and watched to its end: $protocol, HTTP/$httpVersion, binary $useBinaryFormat",
  async ({ transport, ...options }) => {
    const connection = transport({ baseUrl: mesh.url, ...options });
    const runs = createClient(RunService, connection);
    const worker = await attachWorker(createClient(LeaseService, connection), {});

    const { runId } = await runs.startRun({
      definition: toDefinition({ tasks: [{ key: "t", params: "9007199254740993" }] }),
    });
    const task = await worker.acquireOne();
    expect(await worker.complete(task, "1e400")).toBe("accepted");
    const kinds: unknown[] = [];
    for await (const { change } of runs.watchRun({ runId, afterSequence: 1n })) kinds.push(change!.kind.case);
    const { run } = await runs.getRun({ runId });
    worker.close();

    expect(Buffer.from(task.paramsJson).toString()).toBe("9007199254740993");
    expect(kinds).toEqual(["event", "event"]);
    expect(run!.state).toBe(Run_State.SUCCEEDED);
    const missing = await runs.getRun({ runId: 1n }).catch((error) => error);
    expect(missing.findDetails(ErrorDetailSchema)).toMatchObject([{ reason: Reason.NOT_FOUND }]);
  },
);

test("the port says that it serves, as gRPC asks", async () => {
  const health = createClient(Health, createGrpcTransport({ baseUrl: mesh.url }));

  const { status } = await health.check({ service: "runmesh.run.v1.RunService" });

  expect(status).toBe(HealthCheckResponse_ServingStatus.SERVING);
});

const BODY = JSON.stringify({ definition: { name: "intruder", tasks: [{ key: "t", handler: "never" }] } });
const PATH = "/runmesh.run.v1.RunService/StartRun";
const FOREIGN: readonly [string, Record<string, string>][] = [
  ["a Host of another name", { host: "evil.example" }],
  ["a Host of another name with the port", { host: "evil.example:PORT" }],
  ["the right name with another port", { host: "localhost:1" }],
  ["a foreign Origin", { origin: "https://evil.example" }],
  ["an Origin of another local port", { origin: "http://localhost:3000" }],
  ["an opaque Origin", { origin: "null" }],
  ["a request from another site", { "sec-fetch-site": "cross-site" }],
  ["a Forwarded header", { forwarded: "for=203.0.113.7" }],
  ["an X-Forwarded-For header", { "x-forwarded-for": "203.0.113.7" }],
  ["a Via header", { via: "1.1 proxy" }],
];

test.each(FOREIGN)("%s is refused over HTTP/1.1 and HTTP/2, and nothing is executed", async (_what, headers) => {
  const { port } = new URL(mesh.url);
  const sent = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.replace("PORT", port)]));
  const before = await countRuns();

  const answers = [await call1(sent), await call2(sent)];

  for (const { status, body, cors } of answers) {
    expect(status).toBe(403);
    expect(JSON.parse(body)).toMatchObject({
      code: "permission_denied",
      details: [{ debug: { reason: "REASON_FORBIDDEN" } }],
    });
    expect(cors).toBeUndefined();
  }
  expect(await countRuns()).toBe(before);
});

test("a preflight of a web page is refused without a word about what is allowed", async () => {
  const { status, cors } = await call1(
    { origin: "https://evil.example", "access-control-request-method": "POST" },
    "OPTIONS",
  );

  expect(status).toBe(403);
  expect(cors).toBeUndefined();
});

test("the machine's own names are served", async () => {
  const { port } = new URL(mesh.url);

  expect((await call1({ host: `localhost:${port}` })).status).toBe(200);
  expect((await call2({ host: `127.0.0.1:${port}`, origin: `http://127.0.0.1:${port}` })).status).toBe(200);
});

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly cors: unknown;
}

async function call1(headers: Record<string, string>, method = "POST"): Promise<Answer> {
  const { port, host } = new URL(mesh.url);
  const request = http.request({
    port,
    method,
    path: PATH,
    headers: { host, "content-type": "application/json", ...headers },
  });
  request.end(method === "POST" ? BODY : undefined);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const cors = response.headers["access-control-allow-origin"];
  return { status: response.statusCode!, body: await textOf(response), cors };
}

async function call2({ host, ...headers }: Record<string, string>): Promise<Answer> {
  const session = http2.connect(mesh.url);
  const authority = host ?? new URL(mesh.url).host;
  const stream = session.request({
    ":method": "POST",
    ":path": PATH,
    ":authority": authority,
    "content-type": "application/json",
    ...headers,
  });
  stream.end(BODY);
  const [answered] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
  const body = await textOf(stream);
  session.close();
  return { status: Number(answered[":status"]), body, cors: answered["access-control-allow-origin"] };
}

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

async function countRuns(): Promise<number> {
  return (await mesh.db.one<{ n: number }>("", "SELECT count(*)::int AS n FROM run", [])).n;
}
