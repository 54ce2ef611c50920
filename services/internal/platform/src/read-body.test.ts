import { once } from "node:events";
import * as http2 from "node:http2";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, onTestFinished, test, vi } from "vitest";
import { silentLog } from "./log.ts";
import { createServer } from "./one-port-server.ts";

test("over HTTP/2 a body that does not come to its end is cut off after a minute, and one that does is answered", async () => {
  const server = createServer({
    host: "127.0.0.1",
    port: 0,
    routes: (router) => void router.service(RunService, { getRun: () => ({}) }),
    interceptors: [],
    log: silentLog,
  });
  await server.start();
  onTestFinished(() => server.stop());
  const session = http2.connect(server.address().url);
  onTestFinished(() => session.destroy());
  const post = () =>
    session.request({
      ":method": "POST",
      ":path": "/runmesh.run.v1.RunService/GetRun",
      "content-type": "application/json",
    });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());

  const whole = post();
  const headers = once(whole, "response");
  whole.end("{}");
  const [{ ":status": status }] = (await headers) as [http2.IncomingHttpHeaders];
  whole.resume();
  const leftByTheWhole = vi.getTimerCount();
  const dripping = post();
  dripping.on("error", () => {});
  dripping.write("{");
  await expect.poll(() => vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(59_999);
  const wasOpen = !dripping.closed;
  vi.advanceTimersByTime(1);
  await once(dripping, "close");

  expect(status).toBe(200);
  expect(leftByTheWhole).toBe(0);
  expect(wasOpen).toBe(true);
  expect(dripping.rstCode).toBe(http2.constants.NGHTTP2_CANCEL);
  expect(vi.getTimerCount()).toBe(0);
});
