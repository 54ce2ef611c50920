import type { DescMethod } from "@bufbuild/protobuf";
import { fromBinary } from "@bufbuild/protobuf";
import type { Compression, UniversalServerRequest } from "@connectrpc/connect/protocol";
import { MeshError } from "@runmesh/domain/errors";
import type { Incoming } from "./body-time.ts";
import { checkEnvelopes } from "./envelope-guard.ts";
import { checkJson, checkJsonText } from "./json-guard.ts";
import { readBody } from "./read-body.ts";
import { toConnectError } from "./rpc-errors.ts";
import { MAX_RECURSION, MAX_REQUEST_BYTES } from "./rpc-limits.ts";

/**
 * The library parses a request before any interceptor sees it, and its errors about one carry no detail. So the
 * body is checked on its way in, and what is wrong with it is thrown where the library reads it, which
 * answers it in the caller's own protocol.
 *
 * Messages of unary Connect calls, the hot path, are not decoded a second time: only when one was answered with
 * an error is `check` asked whether the message was at fault.
 */
export interface GuardedRequest {
  readonly request: UniversalServerRequest;
  /** Throws what is wrong with the message. */
  readonly check: () => void;
}

/** Reads a unary Connect body, or wraps the stream of envelopes of every other protocol. */
export async function guardBody(
  request: UniversalServerRequest,
  { request: source, bodyTime }: Pick<Incoming, "request" | "bodyTime">,
  method: DescMethod,
  compressions: readonly Compression[],
  requestId: string,
): Promise<GuardedRequest> {
  const contentType = request.header.get("content-type") ?? "";
  const isJson = JSON_TYPE.test(contentType);
  const checkMessage = (bytes: Uint8Array) => checkMessageOf(method, isJson, bytes);
  const told = (error: unknown) => toConnectError(error, requestId);

  if (ENVELOPED_TYPE.test(contentType)) {
    const encoding = request.header.get("grpc-encoding") ?? request.header.get("connect-content-encoding");
    const compression = compressions.find(({ name }) => name === encoding);
    const isOpenEnded = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
    const body = checkEnvelopes(request.body as AsyncIterable<Uint8Array>, {
      check: checkMessage,
      compression,
      told,
      time: bodyTime,
      isOpenEnded,
    });
    return { request: { ...request, body }, check() {} };
  }

  try {
    let bytes = await readBody(source, MAX_REQUEST_BYTES, bodyTime);
    const compression = compressions.find(({ name }) => name === request.header.get("content-encoding"));
    if (compression !== undefined) {
      bytes = await compression.decompress(bytes, MAX_REQUEST_BYTES);
      request.header.delete("content-encoding");
    }
    if (isJson) checkJsonText(method.input, bytes);
    // The library takes bytes as they are, although the type speaks of parsed JSON.
    return { request: { ...request, body: bytes as never }, check: () => checkMessage(bytes) };
  } catch (error) {
    return { request: { ...request, body: failing(told(error)) }, check() {} };
  }
}

const ENVELOPED_TYPE = /^application\/(connect\+|grpc)/i;
const JSON_TYPE = /[/+]json\b/i;

/** Throws what is wrong with the request message of a method. */
export function checkMessageOf(method: DescMethod, isJson: boolean, bytes: Uint8Array): void {
  if (isJson) checkJson(method.input, bytes);
  else checkBinary(method, bytes);
}

function checkBinary(method: DescMethod, bytes: Uint8Array): void {
  try {
    fromBinary(method.input, bytes, { recursionLimit: MAX_RECURSION });
  } catch (cause) {
    const description = `this is no ${method.input.typeName}: ${cause instanceof Error ? cause.message : cause}`;
    throw new MeshError("INVALID_FIELD", description, {
      violations: [{ field: "body", reason: "INVALID_FIELD", description }],
      cause,
    });
  }
}

function failing(error: Error): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(error) }) };
}
