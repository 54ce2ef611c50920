import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type HandlerContext } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { GetRunResponseSchema, RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { describe, expect, onTestFinished, test } from "vitest";
import { serve, WAYS, type Way } from "../test/both-ways.ts";
import { exchange } from "../test/raw-http.ts";

const PATH = "/runmesh.run.v1.RunService/GetRun";
const HEADERS = { "content-type": "application/proto", authorization: "viewer" };
const CASES = WAYS.flatMap((way) => (["1.1", "2"] as const).map((version) => ({ way, version })));

/** A server whose handler tells its context, and then what its signal aborted with. */
async function startServer(way: Way, options: { readonly isLate?: boolean; readonly answers?: boolean } = {}) {
  const entered = Promise.withResolvers<HandlerContext>();
  const aborted = Promise.withResolvers<unknown>();
  const released = Promise.withResolvers<void>();
  const server = serve(way, async (_, context) => {
    entered.resolve(context);
    if (options.isLate) await released.promise;
    const { signal } = context;
    if (!signal.aborted) await once(signal, "abort");
    aborted.resolve(signal.reason);
    if (options.answers) return { run: { id: 7n } };
    throw signal.reason;
  });
  await server.start();
  onTestFinished(() => server.stop());
  return { server, entered: entered.promise, aborted: aborted.promise, release: () => released.resolve() };
}

/** Sends a call, and answers what leaves it. */
function begin(version: "1.1" | "2", url: string): () => void {
  if (version === "1.1") {
    const request = http.request(url + PATH, { method: "POST", headers: HEADERS });
    request.on("error", () => {});
    request.end();
    return () => void request.destroy();
  }
  const session = http2.connect(url);
  const stream = session.request({ ":path": PATH, ":method": "POST", ...HEADERS });
  stream.on("error", () => {}).on("close", () => session.close());
  stream.end();
  return () => void stream.close(http2.constants.NGHTTP2_CANCEL);
}

function callThrough(version: "1.1" | "2", baseUrl: string, timeoutMs?: number) {
  const client = createClient(RunService, createConnectTransport({ baseUrl, httpVersion: version }));
  return client.getRun({}, { headers: { authorization: "viewer" }, ...(timeoutMs !== undefined && { timeoutMs }) });
}

describe.each(CASES)("$way way over HTTP/$version", ({ way, version }) => {
  test("a handler's signal aborts when its caller leaves", async () => {
    const { server, entered, aborted } = await startServer(way);
    const leave = begin(version, server.address().url);
    await entered;

    leave();

    expect(await aborted).toMatchObject({ name: expect.stringMatching(/Error$/) });
  });

  test("a signal that is asked for after the caller left is aborted", async () => {
    const { server, entered, aborted, release } = await startServer(way, { isLate: true });
    const leave = begin(version, server.address().url);
    await entered;

    leave();
    // The server answers others that come later, so it has heard of what came before.
    for (let i = 0; i < 2; i++) await exchange("1.1", server.address().url, { path: "/", headers: {} });
    release();

    expect(await aborted).toBeInstanceOf(Error);
  });

  test("a handler's signal aborts with DEADLINE_EXCEEDED when the caller's time is over", async () => {
    const { server, aborted } = await startServer(way);

    const headers = { ...HEADERS, "connect-timeout-ms": "20" };
    const answer = await exchange(version, server.address().url, { path: PATH, headers });

    expect(await aborted).toMatchObject({ code: Code.DeadlineExceeded });
    expect(answer.status).toBe(504);
    expect(JSON.parse(answer.body)).toMatchObject({ code: "deadline_exceeded", details: [{}] });
  });

  test("a handler's signal aborts with UNAVAILABLE when the server stops, which waits for the answer", async () => {
    const { server, entered, aborted } = await startServer(way, { answers: true });
    const answer = callThrough(version, server.address().url);
    await entered;

    await server.stop();

    expect(await aborted).toMatchObject({ code: Code.Unavailable });
    expect((await answer).run?.id).toBe(7n);
  });

  test("a signal that outlives its call is aborted at the call's end", async () => {
    let kept: AbortSignal | undefined;
    const server = serve(way, (_, context) => {
      kept = context.signal;
      return {};
    });
    await server.start();
    onTestFinished(() => server.stop());

    await callThrough(version, server.address().url);

    expect(kept?.aborted).toBe(true);
    expect(kept?.reason).toMatchObject({ name: "AbortError" });
  });

  test("a handler that fails gives its signal the error as its reason", async () => {
    let kept: AbortSignal | undefined;
    const server = serve(way, (_, context) => {
      kept = context.signal;
      throw new ConnectError("full", Code.ResourceExhausted);
    });
    await server.start();
    onTestFinished(() => server.stop());

    await expect(callThrough(version, server.address().url)).rejects.toMatchObject({ code: Code.ResourceExhausted });

    expect(kept?.reason).toMatchObject({ code: Code.ResourceExhausted });
  });
});

test("a timeout longer than a timer of Node can be does not fire at once", async () => {
  const server = serve("our own", (_, { signal, timeoutMs }) => ({
    run: { id: signal.aborted ? 0n : BigInt(timeoutMs()! > 2 ** 32) },
  }));
  await server.start();
  onTestFinished(() => server.stop());

  const headers = { ...HEADERS, "connect-timeout-ms": "9000000000" };
  const answer = await exchange("1.1", server.address().url, { path: PATH, headers });

  expect(fromBinary(GetRunResponseSchema, Buffer.from(answer.body, "latin1")).run?.id).toBe(1n);
});
