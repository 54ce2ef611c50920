import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { onTestFinished } from "vitest";

/** A request whose body begins and does not end by itself. */
export interface Drip {
  write(chunk: string): void;
  end(): void;
  /** The answer once it is whole. */
  readonly answer: Promise<{
    readonly status: number;
    readonly trailers: http.IncomingHttpHeaders;
    readonly body: string;
  }>;
  readonly hasAnswer: () => boolean;
  /** Resolves when the server has closed what carried the body, with the HTTP/2 error code of that. */
  readonly closed: Promise<number>;
  readonly isClosed: () => boolean;
}

/** Sends the head, and what there is of the body. */
export function drip(version: "1.1" | "2", url: string, headers: object, begun: string): Drip {
  const drip = version === "1.1" ? dripHttp1(url, { ...headers }) : dripHttp2(new URL(url), { ...headers });
  drip.write(begun);
  return drip;
}

function dripHttp1(url: string, headers: http.OutgoingHttpHeaders): Drip {
  const request = http.request(url, { method: "POST", headers, agent: false });
  request.on("error", () => {});
  let isAnswered = false;
  const read = async () => {
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    isAnswered = true;
    const body = await readAll(response);
    return { status: response.statusCode ?? 0, trailers: response.trailers as http.IncomingHttpHeaders, body };
  };
  return {
    write: (chunk) => void request.write(chunk, "latin1"),
    end: () => void request.end(),
    answer: read(),
    hasAnswer: () => isAnswered,
    isClosed: () => request.closed,
    closed: once(request, "close").then(() => http2.constants.NGHTTP2_NO_ERROR),
  };
}

function dripHttp2({ origin, pathname }: URL, headers: http.OutgoingHttpHeaders): Drip {
  const session = http2.connect(origin);
  onTestFinished(() => session.destroy());
  const stream = session.request({ ":method": "POST", ":path": pathname, ...headers });
  stream.on("error", () => {});
  let isAnswered = false;
  let trailers: http.IncomingHttpHeaders = {};
  stream.on("trailers", (all) => {
    trailers = all;
  });
  const read = async () => {
    const [head] = (await once(stream, "response")) as [http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader];
    isAnswered = true;
    const body = await readAll(stream);
    return { status: head[":status"] ?? 0, trailers: { ...head, ...trailers }, body };
  };
  return {
    write: (chunk) => void stream.write(chunk, "latin1"),
    end: () => void stream.end(),
    answer: read(),
    hasAnswer: () => isAnswered,
    isClosed: () => stream.closed,
    closed: once(stream, "close").then(() => stream.rstCode ?? 0),
  };
}

async function readAll(source: NodeJS.ReadableStream): Promise<string> {
  source.setEncoding("latin1");
  let text = "";
  for await (const chunk of source) text += chunk;
  return text;
}
