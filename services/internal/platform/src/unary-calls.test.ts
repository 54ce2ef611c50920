/** Every plain call and what borders on one, answered by our handler and by the library's: the answers are the same. */
import { create, toBinary } from "@bufbuild/protobuf";
import { GetRunRequestSchema, StartRunRequestSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BEHAVIOURS, type GetRun, type Seen, serve, type Way } from "../test/both-ways.ts";
import { exchange, type Sent } from "../test/raw-http.ts";

const SERVICE = "/runmesh.run.v1.RunService";
const START = { path: `${SERVICE}/StartRun` };
const BINARY = { "content-type": "application/proto", authorization: "viewer", "x-request-id": "mine-1" };
const JSON_TYPE = { ...BINARY, "content-type": "application/json" };
const OPERATOR = { ...BINARY, authorization: "operator" };

const ofRun = (runId: number) => toBinary(GetRunRequestSchema, create(GetRunRequestSchema, { runId: BigInt(runId) }));
const call = (runId: number, headers: Record<string, string> = {}) => ({
  headers: { ...BINARY, ...headers },
  body: ofRun(runId),
});
const inJson = (body: string | Uint8Array) => ({ headers: JSON_TYPE, body });
const withInput = (size: number) =>
  toBinary(
    StartRunRequestSchema,
    create(StartRunRequestSchema, { inputPayload: { case: "inputJson", value: new Uint8Array(size) } }),
  );

const CASES: Record<string, Partial<Sent>> = {
  "a plain call": call(70),
  "a plain call in JSON": inJson('{"runId":"70"}'),
  "JSON with a charset": call(70, { "content-type": "application/json; charset=utf-8" }),
  "an empty message": { body: "" },
  "an empty body in JSON": inJson(""),
  "a body in chunks": { ...call(70), chunked: true },
  "a query string": { ...call(70), path: `${SERVICE}/GetRun?a=b` },
  "headers and trailers": call(1),
  "headers and trailers in JSON": inJson('{"runId":"1"}'),
  "an error with a detail": call(2),
  "an error with a detail in JSON": inJson('{"runId":"2"}'),
  "an error with metadata of its own": call(3),
  "a bug": call(4),
  "an error without a detail": call(5),
  "an answer that cannot be written": call(6),
  "an error that came over another wire": call(7),
  "a bug beside the error interceptor": call(70, { "x-beside": "bug" }),
  "an error beside the error interceptor": call(70, { "x-beside": "error" }),
  "an interceptor that replaces headers and trailers": call(1, { "x-replace": "headers" }),
  "an interceptor that replaces the signal": call(8, { "x-replace": "signal" }),
  "bytes that are no message": { body: Uint8Array.from([0xff, 0xff, 0xff]) },
  "text that is no JSON": inJson("{"),
  "JSON with an unknown field": inJson('{"runIdd":"1"}'),
  "JSON that is not UTF-8": inJson(Uint8Array.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])),
  "JSON with a number that would change": { ...START, ...inJson('{"input":{"a":[1e400]}}') },
  "a message just below the limit": { ...START, headers: OPERATOR, body: withInput(4_194_000) },
  "a message over the limit": { ...START, headers: OPERATOR, body: withInput(4_194_400) },
  "a message over the limit in chunks": { ...START, headers: OPERATOR, body: withInput(4_194_400), chunked: true },
  "a method that nobody serves here": { path: `${SERVICE}/ListRuns`, body: "" },
  "a method that there is not": { path: `${SERVICE}/GetRuns`, body: "" },
  "no content type": { headers: { authorization: "viewer", "x-request-id": "mine-1" }, body: "" },
  "another content type": call(70, { "content-type": "text/plain" }),
  "a content type in capitals": call(70, { "content-type": "Application/Proto" }),
  "another verb": { ...call(70), method: "PUT" },
  "a GET": { method: "GET" },
  "a GET with a message": { method: "GET", path: `${SERVICE}/GetRun?connect=v1&encoding=proto&message=` },
  "a protocol version that there is not": call(70, { "connect-protocol-version": "9" }),
  "an encoding that is not taken": call(70, { "content-encoding": "gzip" }),
  "the encoding identity": call(70, { "content-encoding": "identity" }),
  "encodings that could be answered in": call(70, { "accept-encoding": "gzip, br" }),
  "a timeout": call(8, { "connect-timeout-ms": "60000" }),
  "a timeout of nothing": call(8, { "connect-timeout-ms": "0" }),
  "a timeout that is none": call(8, { "connect-timeout-ms": "1s" }),
  "a timeout of too many digits": call(8, { "connect-timeout-ms": "99999999999" }),
  "no credential": { headers: { "content-type": "application/proto", "x-request-id": "mine-1" }, body: ofRun(70) },
  "a role that may not": { ...call(70), path: `${SERVICE}/CancelRun` },
};

const getRun: GetRun = ({ runId }, context) => BEHAVIOURS[String(runId)]?.(context) ?? { run: { id: runId } };
const seen: Record<Way, Seen> = { "our own": {}, "the library's": {} };
const ours = serve("our own", getRun, seen["our own"]);
const stock = serve("the library's", getRun, seen["the library's"]);
beforeAll(() => Promise.all([ours.start(), stock.start()]));
afterAll(() => Promise.all([ours.stop(), stock.stop()]));

describe.each(["1.1", "2"] as const)("over HTTP/%s", (version) => {
  test.each(Object.entries(CASES))("%s is answered, and seen by its handler, as by the library", async (_, given) => {
    const sent = { path: `${SERVICE}/GetRun`, headers: BINARY, ...given };
    for (const of of Object.values(seen)) Object.assign(of, { context: undefined, refused: undefined });

    const answer = await exchange(version, ours.address().url, sent);
    const expected = await exchange(version, stock.address().url, sent);

    expect(answer).toEqual(expected);
    expect(seen["our own"]).toEqual(seen["the library's"]);
  });
});
