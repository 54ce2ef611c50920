import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type Drip, drip } from "../test/drip.ts";
import { TRAILERS_TIMEOUT_MS } from "./body-time.ts";
import { silentLog } from "./log.ts";
import { createServer } from "./one-port-server.ts";
import { reflectionRoutes } from "./reflection.ts";
import { BODY_TIMEOUT_MS } from "./rpc-limits.ts";

const GET_RUN = "/runmesh.run.v1.RunService/GetRun";
const WATCH_RUN = "/runmesh.run.v1.RunService/WatchRun";
const REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const envelope = (json: string) => `\0\0\0\0${String.fromCharCode(json.length)}${json}`;
/** The head of a message of two bytes, and one of them. */
const HALF = "\0\0\0\0\u0002{";
const LIST = envelope('{"listServices":""}');

const server = createServer({
  host: "127.0.0.1",
  port: 0,
  interceptors: [],
  log: silentLog,
  routes(router) {
    router.service(RunService, {
      getRun: () => ({}),
      async *watchRun() {
        yield {};
      },
    });
    reflectionRoutes([RunService])(router);
  },
});
beforeAll(() => server.start());
afterAll(() => server.stop());
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const begin = (version: "1.1" | "2", path: string, contentType: string, begun: string, headers: object = {}) =>
  drip(version, server.address().url + path, { "content-type": contentType, ...headers }, begun);

/** `expect.poll` would let time pass. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(setImmediate);
}
const seeTimers = (count: number) => until(() => vi.getTimerCount() === count);

/** Lets the time of the body pass, and tells that nothing was answered before it had. */
async function pass({ hasAnswer }: Drip): Promise<void> {
  await seeTimers(1);
  vi.advanceTimersByTime(BODY_TIMEOUT_MS - 1);
  await new Promise(setImmediate);
  expect(hasAnswer()).toBe(false);
  vi.advanceTimersByTime(1);
}

/** The code with which the server closes what carried the body, after the answer. */
async function seeClosed({ closed, isClosed }: Drip): Promise<number> {
  if (!isClosed()) vi.advanceTimersByTime(TRAILERS_TIMEOUT_MS);
  return closed;
}

describe.each(["1.1", "2"] as const)("over HTTP/%s", (version) => {
  test.each([
    { way: "by our own handler", headers: {} },
    { way: "by the library's", headers: { "content-encoding": "identity" } },
  ])("a Connect call that does not come to its end is answered DEADLINE_EXCEEDED, $way", async ({ headers }) => {
    const call = begin(version, GET_RUN, "application/json", "{", headers);

    await pass(call);
    const { status, body } = await call.answer;

    expect(status).toBe(504);
    expect(JSON.parse(body)).toMatchObject({
      code: "deadline_exceeded",
      message: "the request did not come to its end within 60 s",
      details: [{ debug: { reason: "REASON_CANCELLED" } }],
    });
    expect(await seeClosed(call)).toBe(0);
  });

  test("a Connect stream whose message does not come to its end is ended with DEADLINE_EXCEEDED", async () => {
    const call = begin(version, WATCH_RUN, "application/connect+json", HALF);

    await pass(call);
    const { status, body } = await call.answer;

    expect(status).toBe(200);
    expect(JSON.parse(body.slice(5))).toMatchObject({ error: { code: "deadline_exceeded", details: [{}] } });
    expect(await seeClosed(call)).toBe(0);
  });

  test.each([
    { what: "a call whose message does not come to its end", path: GET_RUN, begun: HALF },
    { what: "a call that sends nothing", path: GET_RUN, begun: "" },
    { what: "a call that goes on after its message", path: GET_RUN, begun: envelope("{}") },
    { what: "a stream whose message does not come to its end", path: WATCH_RUN, begun: HALF },
    { what: "a stream that goes on after its message", path: WATCH_RUN, begun: envelope("{}") },
  ])("of gRPC-Web, $what, is answered with status 4", async ({ path, begun }) => {
    const call = begin(version, path, "application/grpc-web+json", begun);

    await pass(call);

    expect((await call.answer).body).toMatch(/grpc-status: 4\r\n/);
    expect(await seeClosed(call)).toBe(0);
  });

  test("what is refused is closed when its body has not come to its end by then", async () => {
    const call = begin(version, "/nowhere", "application/json", "{");

    const { status } = await call.answer;
    if (version === "2") {
      await seeTimers(1);
      vi.advanceTimersByTime(BODY_TIMEOUT_MS);
    }

    expect(status).toBe(404);
    expect(await seeClosed(call)).toBe(0);
  });

  test("what is too large is answered at once, and closed when the rest has not come by then", async () => {
    const call = begin(version, GET_RUN, "application/json", "x".repeat(4 * 1024 * 1024 + 1));

    const { status, body } = await call.answer;
    await seeTimers(1);
    vi.advanceTimersByTime(BODY_TIMEOUT_MS);

    expect([status, JSON.parse(body).details[0].debug.reason]).toEqual([400, "REASON_TOO_LARGE"]);
    expect(await seeClosed(call)).toBe(0);
  });
});

describe("over gRPC", () => {
  test.each([
    { what: "a call whose message does not come to its end", path: GET_RUN, begun: HALF },
    { what: "a call that goes on after its message", path: GET_RUN, begun: envelope("{}") },
    { what: "a stream whose message does not come to its end", path: WATCH_RUN, begun: HALF },
    { what: "an open stream whose first message does not come to its end", path: REFLECTION, begun: HALF },
    { what: "an open stream that sends nothing", path: REFLECTION, begun: "" },
  ])("$what is answered with status 4", async ({ path, begun }) => {
    const call = begin("2", path, "application/grpc+json", begun);

    await pass(call);
    const { status, trailers } = await call.answer;

    expect(status).toBe(200);
    expect(trailers).toMatchObject({ "grpc-status": "4", "grpc-status-details-bin": expect.any(String) });
    expect(await seeClosed(call)).toBe(0);
  });

  test("an open stream has all the time between its messages, and each message its own", async () => {
    const call = begin("2", REFLECTION, "application/grpc+json", LIST);
    await until(call.hasAnswer);
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(10 * BODY_TIMEOUT_MS);

    call.write(LIST + HALF);
    await seeTimers(1);
    vi.advanceTimersByTime(BODY_TIMEOUT_MS);
    const { trailers, body } = await call.answer;

    expect(body.match(/listServicesResponse/g)).toHaveLength(2);
    expect(trailers["grpc-status"]).toBe("4");
    expect(await seeClosed(call)).toBe(0);
  });
});

test.each([
  { version: "1.1", contentType: "application/json", body: "{}" },
  { version: "2", contentType: "application/json", body: "{}" },
  { version: "1.1", contentType: "application/connect+json", body: envelope("{}") },
  { version: "2", contentType: "application/grpc+json", body: envelope("{}") },
] as const)("of a $contentType that was answered over HTTP/$version no timer is left", async (given) => {
  const path = given.contentType === "application/connect+json" ? WATCH_RUN : GET_RUN;
  const { answer, end } = begin(given.version, path, given.contentType, given.body);

  end();

  expect((await answer).status).toBe(200);
  await seeTimers(0);
});
