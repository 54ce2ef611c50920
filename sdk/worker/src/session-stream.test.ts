import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { FromThread, ThreadOptions } from "./renewal-protocol.ts";
import { createSessionStream } from "./session-stream.ts";

const options = { name: "w", handlers: [], queues: [], capabilities: [], slots: 1, leaseMs: 1_000 };
const keeper = { begin() {}, end() {}, lose() {} } as unknown as LeaseKeeper;
const attached = {
  message: { case: "attached", value: { sessionId: 1n, sessionToken: "t", leaseMs: 1_000, renewMs: 300 } },
};

test("a mesh that is away is told once, and so is that it is back", async () => {
  const over = new AbortController();
  const posted: FromThread[] = [];
  let calls = 0;
  async function* attach() {
    if (++calls < 5) throw new ConnectError("away", Code.Unavailable);
    yield attached;
    over.abort();
  }
  const client = { attach } as unknown as Parameters<typeof createSessionStream>[0];
  const stream = createSessionStream(
    client,
    options as unknown as ThreadOptions,
    (m) => posted.push(m),
    () => keeper,
  );

  await stream.run(over.signal);

  const told = posted.flatMap((message) => (message.kind === "trouble" ? [message.message] : []));
  expect(told).toEqual(["attaching to the mesh: UNAVAILABLE: away", "attached to the mesh again"]);
});
