/** Our transport and the library's, at our server and at the library's: each reads the same from each. */
import { toJson } from "@bufbuild/protobuf";
import { type CallOptions, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { createTransport } from "@runmesh/client/internal";
import { GetRunResponseSchema, RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BEHAVIOURS, type GetRun, serve, WAYS } from "../test/both-ways.ts";
import { findErrorDetail } from "./rpc-errors.ts";

const getRun: GetRun = ({ runId }, context) => BEHAVIOURS[String(runId)]?.(context) ?? { run: { id: runId } };
const servers = { "our own": serve("our own", getRun), "the library's": serve("the library's", getRun) };
beforeAll(() => Promise.all(Object.values(servers).map((server) => server.start())));
afterAll(() => Promise.all(Object.values(servers).map((server) => server.stop())));

const CASES: Record<string, { readonly runId: number; readonly options?: CallOptions; readonly role?: string }> = {
  "an answer": { runId: 70 },
  "headers and trailers": { runId: 1 },
  "an error with a detail": { runId: 2 },
  "an error with metadata of its own": { runId: 3 },
  "a bug": { runId: 4 },
  "an error without a detail": { runId: 5 },
  "an answer that could not be written": { runId: 6 },
  "headers of a call": { runId: 1, options: { headers: { "x-replace": "headers" } } },
  "a signal that is aborted": { runId: 70, options: { signal: AbortSignal.abort(new Error("enough")) } },
  "a call with time": { runId: 8, options: { timeoutMs: 30_000 } },
  "a call without a limit": { runId: 8, options: { timeoutMs: 0 } },
  "a role that may not": { runId: 70, role: "worker" },
};

describe.each(WAYS)("at %s server", (way) => {
  test.each(Object.entries(CASES))("%s is read as the library reads it", async (_, { runId, options, role }) => {
    const { url } = servers[way].address();
    const authorization = `Bearer ${role ?? "viewer"}`;
    const own = createTransport({ url, apiKey: role ?? "viewer" });
    const library = createConnectTransport({
      baseUrl: url,
      httpVersion: "1.1",
      acceptCompression: [],
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", authorization);
          return next(request);
        },
      ],
    });

    const read = await outcomeOf(own, BigInt(runId), options);
    const expected = await outcomeOf(library, BigInt(runId), options);
    own.close();

    expect(read).toEqual(expected);
  });
});

async function outcomeOf(transport: Transport, runId: bigint, options: CallOptions = {}): Promise<object> {
  let header: Headers | undefined;
  let trailer: Headers | undefined;
  const headers = new Headers(options.headers);
  headers.set("x-request-id", "mine-1");
  try {
    const answer = await createClient(RunService, transport).getRun(
      { runId },
      { ...options, headers, onHeader: (of) => (header = of), onTrailer: (of) => (trailer = of) },
    );
    return { answer: toJson(GetRunResponseSchema, answer), header: plain(header), trailer: plain(trailer) };
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const { code, rawMessage, details, metadata, isWireError } = error;
    return { code, rawMessage, details, detail: findErrorDetail(error), metadata: plain(metadata), isWireError };
  }
}

/** What a connection says of itself is not part of the answer. */
const plain = (headers: Headers | undefined) =>
  [...(headers ?? [])].filter(([name]) => !["date", "connection", "keep-alive"].includes(name));
