import type { NodeRequest } from "./one-port-server.ts";

/** What a plain call's head says. */
export interface PlainHead {
  readonly isJson: boolean;
  readonly timeoutMs: number | undefined;
  /** As in "http://127.0.0.1:7400/runmesh.run.v1.RunService/GetRun". */
  readonly url: string;
}

const BINARY = "application/proto";
const JSON_TYPE = /^application\/json(?:; ?charset=utf-?8)?$/i;
const TIMEOUT = /^\d{1,10}$/;
/** A host with or without a port. Whatever else stands there, the library may refuse. */
const AUTHORITY = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i;

/**
 * Reads the head of a unary Connect POST. Undefined where anything in it is out of the ordinary or wrong, which is the
 * library's to serve or to refuse.
 */
export function readPlainHead(request: NodeRequest, negotiatesCompression: boolean): PlainHead | undefined {
  const { headers } = request;
  if (request.method !== "POST" || headers["content-encoding"] !== undefined) return undefined;
  if (negotiatesCompression && headers["accept-encoding"] !== undefined) return undefined;
  const type = headers["content-type"];
  const isJson = type !== BINARY;
  if (isJson && (type === undefined || !JSON_TYPE.test(type))) return undefined;
  const timeout = headers["connect-timeout-ms"];
  if (timeout !== undefined && (typeof timeout !== "string" || !TIMEOUT.test(timeout))) return undefined;
  const authority = "authority" in request ? request.authority : headers.host;
  if (authority === undefined || !AUTHORITY.test(authority)) return undefined;
  return {
    isJson,
    timeoutMs: timeout === undefined ? undefined : Number(timeout),
    url: `http://${authority}${request.url}`,
  };
}

/** The headers of a request as interceptors and handlers read them, without the pseudo-headers of HTTP/2. */
export function readHeaders(request: NodeRequest): Headers {
  const headers = new Headers();
  for (const name in request.headers) {
    const value = request.headers[name];
    if (value === undefined || name.startsWith(":")) continue;
    if (typeof value === "string") headers.append(name, value);
    else for (const one of value) headers.append(name, one);
  }
  return headers;
}
