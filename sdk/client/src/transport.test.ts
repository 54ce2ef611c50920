import { once } from "node:events";
import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { expect, onTestFinished, test } from "vitest";
import { createServiceClient } from "./service-client.ts";
import { createTransport } from "./transport.ts";

test("closing a transport closes the connection of a stream that the server holds open", async () => {
  const { url, closed } = await useServer();
  const transport = createTransport({ url });
  const runs = createServiceClient(RunService, transport, { timeoutMs: 10_000, attempts: 1 });
  const changes = runs.watchRun({ runId: 1n })[Symbol.asyncIterator]();
  const first = await changes.next();

  transport.close();

  expect(first.value?.change?.sequence).toBe(1n);
  await closed;
  await expect(changes.next()).rejects.toMatchObject({ reason: "CANCELLED" });
});

/** One change, and then nothing more, without an end. */
async function useServer(): Promise<{ url: string; closed: Promise<void> }> {
  const server = http2.createServer(
    connectNodeAdapter({
      routes: (router) =>
        void router.service(RunService, {
          async *watchRun(_, { signal }) {
            yield { change: { sequence: 1n } };
            await once(signal, "abort");
          },
        }),
    }),
  );
  const closed = new Promise<void>((resolve) => {
    server.once("session", (session) => session.on("error", () => {}).once("close", resolve));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, closed };
}
