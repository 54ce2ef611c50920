import { once } from "node:events";
import * as net from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, onTestFinished, test } from "vitest";
import { create, failureOf } from "../test/run-server.ts";
import type { Server } from "./one-port-server.ts";

test.each(["1.1", "2"] as const)(
  "stop lets an HTTP/%s call finish, ends its streams, and frees the port",
  async (httpVersion) => {
    const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const { promise: streaming, resolve: streams } = Promise.withResolvers<void>();
    const draining = create({
      routes: (router) =>
        router.service(RunService, {
          async getRun() {
            enter();
            await released;
            return { run: { id: 7n } };
          },
          async *watchRun(_, { signal }) {
            const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
            yield {};
            streams();
            await aborted;
            release();
          },
        }),
    });
    await draining.start();
    const { port, url } = draining.address();
    const client = createClient(RunService, createConnectTransport({ baseUrl: url, httpVersion }));
    const unary = client.getRun({});
    const watch = (async () => {
      let count = 0;
      for await (const _ of client.watchRun({})) count++;
      return count;
    })();
    await Promise.all([entered, streaming]);

    await draining.stop();
    await draining.stop();

    expect((await unary).run?.id).toBe(7n);
    expect(await watch).toBe(1);
    const again = create({ port });
    await again.start();
    expect(again.address().port).toBe(port);
    await again.stop();
  },
);

test("a call that arrives while the server drains still finds its address", async () => {
  const ports: number[] = [];
  const draining: Server = create({
    guard() {
      ports.push(draining.address().port);
      return undefined;
    },
  });
  await draining.start();
  const { port } = draining.address();
  const socket = net.connect(port, "127.0.0.1").setEncoding("latin1");
  socket.write("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /b HTTP/1.1\r\n");
  await once(socket, "data");

  const stopped = draining.stop();
  await new Promise(setImmediate);
  socket.write("Host: localhost\r\n\r\n");
  await once(socket, "data");
  socket.destroy();
  await stopped;

  expect(ports).toEqual([port, port]);
});

test("a call that does not end is cut off after the drain timeout", async () => {
  const { promise: entered, resolve: enter } = Promise.withResolvers<void>();
  const stuck = create({
    drainTimeoutMs: 10,
    routes: (router) =>
      router.service(RunService, {
        getRun: () => {
          enter();
          return new Promise(() => {});
        },
      }),
  });
  await stuck.start();
  const client = createClient(RunService, createConnectTransport({ baseUrl: stuck.address().url, httpVersion: "1.1" }));
  const failed = failureOf(client.getRun({}));
  await entered;

  await stuck.stop();

  expect((await failed).code).toBe(Code.Aborted);
});

test("a server starts and stops many times", async () => {
  const restarted = create();
  for (let round = 0; round < 10; round++) {
    await Promise.all([restarted.start(), restarted.start()]);
    const url = `${restarted.address().url}/runmesh.run.v1.RunService/StartRun`;
    const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    expect(answer.status).toBe(200);
    await answer.text();
    await Promise.all([restarted.stop(), restarted.stop()]);
  }
});

test("a port that is taken is refused", async () => {
  const first = create();
  await first.start();
  onTestFinished(() => first.stop());

  await expect(create({ port: first.address().port }).start()).rejects.toMatchObject({ code: "EADDRINUSE" });
});
