import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { Code, type ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { MeshError } from "@runmesh/domain/errors";
import type { NodeRequest, NodeResponse } from "./one-port-server.ts";
import { REQUEST_ID_HEADER } from "./request-id.ts";
import { toConnectError } from "./rpc-errors.ts";

/**
 * Answers a request that no handler sees. A gRPC client reads the status from the headers (a "trailers-only"
 * answer); everyone else, a browser included, gets the HTTP status and Connect's JSON error.
 */
export function refuse(request: NodeRequest, response: NodeResponse, error: MeshError, requestId: string): void {
  const told = toConnectError(error, requestId);
  const contentType = request.headers["content-type"] ?? "";
  // FORBIDDEN keeps its HTTP status whatever the protocol: a proxy or browser must see the refusal as well.
  const isGrpc = contentType.startsWith("application/grpc");
  const headers: OutgoingHttpHeaders = { [REQUEST_ID_HEADER]: requestId };
  const body = isGrpc ? undefined : errorToJsonBytes(told, undefined);
  if (isGrpc) Object.assign(headers, grpcHeaders(told, contentType));
  else headers["content-type"] = "application/json";
  if (body !== undefined) headers["content-length"] = body.byteLength;
  // The body was not read: an HTTP/1.1 connection cannot be used again, unless there was none.
  if (request.httpVersionMajor === 1 && hasBody(request)) headers.connection = "close";

  const out = response as ServerResponse;
  out.writeHead(getStatus(told.code, isGrpc), headers);
  out.end(body);
  (request as NodeJS.ReadableStream).resume();
}

function grpcHeaders(error: ConnectError, contentType: string): OutgoingHttpHeaders {
  const status = new Headers();
  setTrailerStatus(status, error);
  return { ...Object.fromEntries(status), "content-type": contentType };
}

function getStatus(code: Code, isGrpc: boolean): number {
  if (code === Code.Unimplemented) return isGrpc ? 200 : 404;
  return isGrpc && code !== Code.PermissionDenied ? 200 : codeToHttpStatus(code);
}

function hasBody(request: NodeRequest): boolean {
  return request.headers["transfer-encoding"] !== undefined || (request.headers["content-length"] ?? "0") !== "0";
}
