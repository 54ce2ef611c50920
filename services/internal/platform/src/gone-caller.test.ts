import { Code, type ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, test } from "vitest";
import { isCallerLeft } from "./gone-caller.ts";
import { type Log, silentLog } from "./log.ts";
import { createServer } from "./one-port-server.ts";
import { errorInterceptor } from "./rpc-errors.ts";

type Protocol = (options: { baseUrl: string; httpVersion: "1.1" | "2" }) => Transport;
const PROTOCOLS: [string, Protocol][] = [
  ["Connect", createConnectTransport],
  ["gRPC", createGrpcTransport],
  ["gRPC-Web", createGrpcWebTransport],
];
const CASES = PROTOCOLS.flatMap(([name, transport]) =>
  (["1.1", "2"] as const).map((httpVersion) => ({ name, transport, httpVersion })),
);

test.each(CASES)(
  "a $name stream over HTTP/$httpVersion that its caller leaves is no failed call, though more is sent into it",
  async ({ transport, httpVersion }) => {
    const failures: unknown[] = [];
    const log: Log = { ...silentLog, error: (fields) => failures.push(fields.error) };
    const over = Promise.withResolvers<unknown>();
    await using server = await serve(log, async function* (signal) {
      let thrown: unknown;
      try {
        const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
        yield {};
        await aborted;
        for (let i = 0; i < 10; i++) yield {};
      } catch (error) {
        thrown = error;
        throw error;
      } finally {
        over.resolve(thrown);
      }
    });
    const client = createClient(RunService, transport({ baseUrl: server.url, httpVersion }));

    const leaving = new AbortController();
    const read = async () => {
      for await (const _ of client.watchRun({}, { signal: leaving.signal })) leaving.abort();
    };
    await expect(read()).rejects.toMatchObject({ code: Code.Canceled });
    const thrown = await over.promise;

    // A protocol may only end the handler, and not say why.
    expect(thrown === undefined || isCallerLeft(thrown)).toBe(true);
    expect(failures).toEqual([]);
  },
);

test("what a handler throws in a stream that its caller still reads is a failed call", async () => {
  const failures: unknown[] = [];
  const fault = new Error("broken");
  const log: Log = { ...silentLog, error: (fields) => failures.push(fields.error) };
  await using server = await serve(log, async function* () {
    yield {};
    throw fault;
  });
  const client = createClient(RunService, createConnectTransport({ baseUrl: server.url, httpVersion: "2" }));

  const read = async () => {
    for await (const _ of client.watchRun({}));
  };

  await expect(read()).rejects.toMatchObject({ code: Code.Internal } satisfies Partial<ConnectError>);
  expect(failures).toEqual([fault]);
});

async function serve(log: Log, watchRun: (signal: AbortSignal) => AsyncGenerator<object>) {
  const server = createServer({
    host: "127.0.0.1",
    port: 0,
    routes: (router) => router.service(RunService, { watchRun: (_, { signal }) => watchRun(signal) }),
    interceptors: [errorInterceptor({ log })],
    log: silentLog,
  });
  await server.start();
  return { url: server.address().url, [Symbol.asyncDispose]: () => server.stop() };
}
