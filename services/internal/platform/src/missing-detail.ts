import { Code, ConnectError } from "@connectrpc/connect";
import type { UniversalServerResponse } from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorFromJsonBytes, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import type { GuardedRequest } from "./body-guard.ts";
import type { Log } from "./log.ts";
import { toConnectError } from "./rpc-errors.ts";

/**
 * Errors that the library makes outside the interceptors (an unknown encoding, a bad timeout, a message it cannot
 * read or write) have no detail; this adds it to the finished answer. A good answer passes untouched.
 */
export async function addMissingDetail(
  answer: UniversalServerResponse,
  guarded: GuardedRequest,
  requestId: string,
  log: Log,
): Promise<UniversalServerResponse> {
  const tell = (error: ConnectError) => explain(error, guarded.check, requestId, log);
  if (answer.trailer !== undefined) {
    return { ...answer, ...(answer.body && { body: withTrailerDetail(answer.body, answer.trailer, tell) }) };
  }
  if (answer.status === 200) return answer;

  if (answer.body === undefined) return errorAnswer(answer, toConnectError(explainStatus(answer.status), requestId));
  const error = await readError(answer);
  if (error.details.length > 0) return { ...answer, body: once(errorToJsonBytes(error, undefined)) };
  const told = tell(error);
  return errorAnswer({ ...answer, status: codeToHttpStatus(told.code) }, told);
}

function errorAnswer(answer: UniversalServerResponse, told: ConnectError): UniversalServerResponse {
  const body = errorToJsonBytes(told, undefined);
  const header = new Headers(answer.header);
  header.set("content-type", "application/json");
  header.set("content-length", String(body.byteLength));
  told.metadata.forEach((value, name) => {
    header.set(name, value);
  });
  return { status: answer.status, header, body: once(body) };
}

/**
 * The error with the detail that it lacks. A library error becomes the fault of the request when `check` finds the
 * request's message to be unreadable.
 */
export function explain(error: ConnectError, check: () => void, requestId: string, log: Log): ConnectError {
  const told = toConnectError(findFault(error, check) ?? error, requestId);
  if (told.code === Code.Internal || told.code === Code.Unknown) {
    log.error({ requestId, error: error.rawMessage }, "a call failed outside its handler");
  }
  return told;
}

function findFault(error: ConnectError, check: () => void): unknown {
  if (error.code !== Code.Internal && error.code !== Code.InvalidArgument) return undefined;
  try {
    check();
    return undefined;
  } catch (fault) {
    return fault;
  }
}

async function* withTrailerDetail(
  body: AsyncIterable<Uint8Array>,
  trailer: Headers,
  tell: (error: ConnectError) => ConnectError,
): AsyncIterable<Uint8Array> {
  yield* body;
  const error = findTrailerError(trailer);
  if (error !== undefined && error.details.length === 0) setTrailerStatus(trailer, tell(error));
}

async function readError(answer: UniversalServerResponse): Promise<ConnectError> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of answer.body ?? []) chunks.push(chunk);
  return errorFromJsonBytes(Buffer.concat(chunks), undefined, new ConnectError("internal error", Code.Internal));
}

/** What the library answers with nothing but a status. */
function explainStatus(status: number): MeshError {
  if (status === 415) {
    const types = "use application/json or application/proto, with connect+ before the subtype where a method streams";
    return invalidField("content-type", `${types}, as in application/connect+json, or a gRPC type`);
  }
  return new MeshError("NOT_SERVED", status === 505 ? "this method needs HTTP/2" : "a call is a POST");
}

function once(bytes: Uint8Array): AsyncIterable<Uint8Array> {
  return {
    async *[Symbol.asyncIterator]() {
      yield bytes;
    },
  };
}
