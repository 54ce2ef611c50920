import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";

export interface Sent {
  readonly path: string;
  readonly method?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
  /** Without a length, so that the server learns it only as it reads. */
  readonly chunked?: boolean;
}

export interface Answer {
  readonly status: number | undefined;
  readonly headers: object;
  readonly body: string;
}

/** One request as it is, on a connection of its own, without a client library that would tidy it up. */
export async function exchange(version: "1.1" | "2", url: string, sent: Sent): Promise<Answer> {
  return version === "1.1" ? exchangeHttp1(url, sent) : exchangeHttp2(url, sent);
}

async function exchangeHttp1(url: string, { path, method = "POST", headers, body = "", chunked }: Sent) {
  const length = method === "GET" || chunked ? {} : { "content-length": String(Buffer.byteLength(body)) };
  const request = http.request(url + path, { method, headers: { ...headers, ...length }, agent: false });
  // A server that has answered need not read the rest.
  request.on("error", () => {});
  if (chunked) request.write(body);
  request.end(chunked || method === "GET" ? undefined : body);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  return { status: response.statusCode, headers: withoutDate(response.headers), body: await read(response) };
}

async function exchangeHttp2(url: string, { path, method = "POST", headers, body = "", chunked }: Sent) {
  const session = http2.connect(url);
  const length = method === "GET" || chunked ? {} : { "content-length": String(Buffer.byteLength(body)) };
  const stream = session.request({ ":path": path, ":method": method, ...headers, ...length });
  stream.end(method === "GET" ? undefined : body);
  const [{ ":status": status, ...rest }] = (await once(stream, "response")) as [
    http2.IncomingHttpHeaders & { ":status": number },
  ];
  const text = await read(stream);
  session.close();
  return { status, headers: withoutDate(rest), body: text };
}

/** In latin1, so that each byte is one character. */
async function read(source: NodeJS.ReadableStream): Promise<string> {
  source.setEncoding("latin1");
  let text = "";
  for await (const chunk of source) text += chunk;
  return text;
}

function withoutDate(headers: http.IncomingHttpHeaders): object {
  const { date: _, ...rest } = headers;
  return rest;
}
