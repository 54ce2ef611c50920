import { once } from "node:events";
import * as net from "node:net";
import { Code, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { create, failureOf } from "../test/run-server.ts";
import { findErrorDetail } from "./rpc-errors.ts";

const server = create();
beforeAll(() => server.start());
afterAll(() => server.stop());

type Protocol = (options: { baseUrl: string; httpVersion: "1.1" | "2"; useBinaryFormat: boolean }) => Transport;
const PROTOCOLS: [string, Protocol][] = [
  ["Connect", createConnectTransport],
  ["gRPC", createGrpcTransport],
  ["gRPC-Web", createGrpcWebTransport],
];
const CASES = PROTOCOLS.flatMap(([protocol, transport]) =>
  (["1.1", "2"] as const).flatMap((httpVersion) =>
    [true, false].map((useBinaryFormat) => ({ protocol, transport, httpVersion, useBinaryFormat })),
  ),
);

describe.each(CASES)("$protocol over HTTP/$httpVersion, binary: $useBinaryFormat", (one) => {
  const connect = () => createClient(RunService, one.transport({ baseUrl: server.address().url, ...one }));

  test("unary calls and streams are answered", async () => {
    const sequences: unknown[] = [];

    const { run } = await connect().getRun({ runId: 7n });
    for await (const { change } of connect().watchRun({ runId: 7n })) sequences.push(change?.sequence);

    expect(run?.id).toBe(7n);
    expect(sequences).toEqual([1n, 2n, 3n]);
  });

  test("errors carry their detail, and the request id of the caller", async () => {
    const missing = await failureOf(connect().getRun({ runId: 0n }, { headers: { "x-request-id": "mine-1" } }));
    const bug = await failureOf(connect().getRun({ runId: -1n }));
    const slow = await failureOf(
      (async () => {
        for await (const _ of connect().watchRun({ runId: 0n }));
      })(),
    );

    expect(missing).toMatchObject({ code: Code.NotFound, rawMessage: "there is no run 0" });
    expect(findErrorDetail(missing)).toMatchObject({ reason: Reason.NOT_FOUND, requestId: "mine-1" });
    expect(bug.code).toBe(Code.Internal);
    expect(bug.rawMessage).not.toContain("hunter2");
    expect(findErrorDetail(bug)?.requestId).toMatch(/^[0-9a-f-]{36}$/);
    expect(findErrorDetail(slow)).toMatchObject({ reason: Reason.SLOW_CONSUMER, lastSequence: 3n });
  });

  test("a message over 4 MiB is TOO_LARGE, and one just below is read", async () => {
    const input = (size: number) => ({
      inputPayload: { case: "inputJson" as const, value: new Uint8Array(one.useBinaryFormat ? size : (size * 3) / 4) },
    });

    await connect().startRun(input(4 * 1024 * 1024 - 100));
    const failed = await failureOf(connect().startRun(input(4 * 1024 * 1024 + 100)));

    expect(failed.code).toBe(Code.InvalidArgument);
    expect(findErrorDetail(failed)).toMatchObject({ reason: Reason.TOO_LARGE, violations: [{ field: "body" }] });
  });
});

async function post(path: string, contentType: string, body: string | Uint8Array<ArrayBuffer>) {
  const response = await fetch(`${server.address().url}/runmesh.run.v1.RunService/${path}`, {
    method: "POST",
    headers: { "content-type": contentType },
    body,
  });
  return { status: response.status, header: response.headers, body: await response.text() };
}

function reasonAndField(body: string): unknown {
  const detail = JSON.parse(body).details[0].debug;
  return { reason: detail.reason, field: detail.violations?.[0]?.field };
}

test("what is no message is refused with a detail in every protocol", async () => {
  const garbage = Uint8Array.from([0xff, 0xff, 0xff]);
  const envelope = Uint8Array.from([0, 0, 0, 0, 3, ...garbage]);

  const unary = await post("GetRun", "application/proto", garbage);
  const stream = await post("WatchRun", "application/connect+proto", envelope);
  const web = await post("GetRun", "application/grpc-web+proto", envelope);

  expect(unary.status).toBe(400);
  expect(reasonAndField(unary.body)).toEqual({ reason: "REASON_INVALID_FIELD", field: "body" });
  const end = JSON.parse(stream.body.slice(5));
  expect(end.error.code).toBe("invalid_argument");
  expect(end.error.details[0].debug).toMatchObject({ reason: "REASON_INVALID_FIELD", violations: [{ field: "body" }] });
  expect(web.body).toContain("grpc-status: 3");
  expect(web.body).toContain("grpc-status-details-bin: ");
});

test("JSON with an unknown field or an infinite number is refused with its path", async () => {
  const unknown = await post("StartRun", "application/json", '{"workflow":"w","inptu":1}');
  const infinite = await post("StartRun", "application/json; charset=utf-8", '{"input":{"a":[1e400]}}');
  const message = Buffer.from('{"runId":{}}');
  const head = Buffer.from([0, 0, 0, 0, message.length]);
  const stream = await post("WatchRun", "application/connect+json", Buffer.concat([head, message]));

  expect(reasonAndField(unknown.body)).toEqual({ reason: "REASON_INVALID_FIELD", field: "inptu" });
  expect(reasonAndField(infinite.body)).toEqual({ reason: "REASON_INVALID_PAYLOAD", field: "input.a[0]" });
  expect(JSON.parse(stream.body.slice(5)).error.details[0].debug.violations[0].field).toBe("run_id");
});

test("JSON nested 250 deep reaches the handler, and 251 deep is refused", async () => {
  const json = `{"input":${"[".repeat(249)}${"]".repeat(249)}}`;

  expect((await post("StartRun", "application/json", json)).status).toBe(200);
  expect((await post("StartRun", "application/json", json.replace("[", "[[").replace("]", "]]"))).status).toBe(400);
});

test("another type, verb, encoding or method is refused with a detail", async () => {
  const type = await post("GetRun", "text/plain", "hello");
  const method = await post("GetRuns", "application/json", "{}");
  const verb = await fetch(`${server.address().url}/runmesh.run.v1.RunService/GetRun`);
  const encoding = await fetch(`${server.address().url}/runmesh.run.v1.RunService/GetRun`, {
    method: "POST",
    headers: { "content-type": "application/proto", "content-encoding": "gzip" },
    body: "x",
  });

  expect([type.status, method.status, verb.status, encoding.status]).toEqual([415, 404, 405, 501]);
  expect(reasonAndField(type.body)).toEqual({ reason: "REASON_INVALID_FIELD", field: "content-type" });
  for (const body of [method.body, await verb.text(), await encoding.text()]) {
    expect(reasonAndField(body)).toMatchObject({ reason: "REASON_NOT_SERVED" });
  }
  expect(type.header.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
});

test("a look at / is told what the port is for, and a misspelled method which one was meant", async () => {
  const { url } = server.address();

  const page = await fetch(url);
  const head = await fetch(url, { method: "HEAD" });
  const misspelled = await post("GetRuns", "application/json", "{}");

  expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/plain; charset=utf-8"]);
  expect(await page.text()).toContain("a POST to /<package>.<Service>/<Method>");
  expect([head.status, await head.text()]).toEqual([200, ""]);
  expect(JSON.parse(misspelled.body).message).toBe(
    "runmesh.run.v1.RunService has no method GetRuns; did you mean GetRun?",
  );
});

test("a connection is sniffed right when its first bytes arrive one by one", async () => {
  const { port } = server.address();
  const body = "{}";
  const request = `POST /runmesh.run.v1.RunService/StartRun HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`;
  const socket = net.connect({ port, host: "127.0.0.1", noDelay: true });
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk;
  });

  for (const letter of request.slice(0, 5)) {
    await new Promise((resolve) => socket.write(letter, resolve));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  socket.write(request.slice(5));
  await once(socket, "close");

  expect(answer).toMatch(/^HTTP\/1\.1 200 OK/);
});

test("a connection that says nothing, or nonsense, harms nobody", async () => {
  const { port } = server.address();
  const silent = net.connect({ port, host: "127.0.0.1" });
  const nonsense = net.connect({ port, host: "127.0.0.1" });
  const prefaceOnly = net.connect({ port, host: "127.0.0.1" });
  await Promise.all([once(silent, "connect"), once(nonsense, "connect"), once(prefaceOnly, "connect")]);
  nonsense.on("error", () => {});
  prefaceOnly.on("error", () => {});

  nonsense.write("\u0000\u0001nonsense\r\n\r\n");
  prefaceOnly.end("PR");
  silent.destroy();
  await once(nonsense.resume(), "close");

  expect((await post("StartRun", "application/json", "{}")).status).toBe(200);
  prefaceOnly.destroy();
});

test("a guard refuses before anything is read, in the caller's protocol", async () => {
  let callCount = 0;
  const guarded = create({
    guard: () => new MeshError("FORBIDDEN", "not from here"),
    routes: (router) =>
      router.service(RunService, {
        getRun: () => {
          callCount++;
          return {};
        },
      }),
  });
  await guarded.start();
  const baseUrl = guarded.address().url;

  for (const [name, transport] of PROTOCOLS) {
    const client = createClient(RunService, transport({ baseUrl, httpVersion: "2", useBinaryFormat: true }));
    expect((await failureOf(client.getRun({}))).code, name).toBe(Code.PermissionDenied);
  }
  const plain = await fetch(`${baseUrl}/`);
  await guarded.stop();

  expect(plain.status).toBe(403);
  expect(reasonAndField(await plain.text())).toMatchObject({ reason: "REASON_FORBIDDEN" });
  expect(callCount).toBe(0);
});

test("what no route takes goes to the fallback", async () => {
  const other = create({ fallback: (_, response) => void response.end("a page") });
  await other.start();

  const answer = await fetch(`${other.address().url}/dashboard`);
  await other.stop();

  expect(await answer.text()).toBe("a page");
});
