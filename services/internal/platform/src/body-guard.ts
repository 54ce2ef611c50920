import type { DescMethod } from "@bufbuild/protobuf";
import { fromBinary } from "@bufbuild/protobuf";
import type { Compression, UniversalServerRequest } from "@connectrpc/connect/protocol";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { checkEnvelopes } from "./envelope-guard.ts";
import { checkJson, checkJsonText } from "./json-guard.ts";
import type { NodeRequest } from "./one-port-server.ts";
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
  source: NodeRequest,
  method: DescMethod,
  compressions: readonly Compression[],
  requestId: string,
): Promise<GuardedRequest> {
  const contentType = request.header.get("content-type") ?? "";
  const isJson = JSON_TYPE.test(contentType);
  const checkMessage = isJson
    ? (bytes: Uint8Array) => checkJson(method.input, bytes)
    : (bytes: Uint8Array) => checkBinary(method, bytes);
  const told = (error: unknown) => toConnectError(error, requestId);

  if (ENVELOPED_TYPE.test(contentType)) {
    const encoding = request.header.get("grpc-encoding") ?? request.header.get("connect-content-encoding");
    const compression = compressions.find(({ name }) => name === encoding);
    const body = checkEnvelopes(request.body as AsyncIterable<Uint8Array>, checkMessage, compression, told);
    return { request: { ...request, body }, check() {} };
  }

  try {
    let bytes = await readBody(source, MAX_REQUEST_BYTES);
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

/** As DESIGN §5 and `TOO_LARGE` say. */
export function tooLarge(limit: number): MeshError {
  return invalidField("body", `the message has more than ${limit} bytes`, "TOO_LARGE");
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

/** The whole body. Over the limit the rest is read and dropped, so that the caller gets to read the answer. */
function readBody(request: NodeRequest, limit: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const source = request as NodeJS.ReadableStream & { readonly headers: NodeRequest["headers"] };
    const chunks: Buffer[] = [];
    let size = 0;
    let isWhole = false;
    if (Number(source.headers["content-length"] ?? 0) > limit) refuse();

    source.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) refuse();
      else chunks.push(chunk);
    });
    source.once("end", () => {
      isWhole = true;
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    });
    source.once("error", reject);
    // Every request closes; only one that closes before its end was left by its caller.
    source.once("close", () => {
      if (!isWhole) reject(new MeshError("CANCELLED", "the caller went away"));
    });

    function refuse(): void {
      chunks.length = 0;
      reject(tooLarge(limit));
    }
  });
}

function failing(error: Error): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(error) }) };
}
