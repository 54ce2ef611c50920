import { createContextValues, type StreamRequest, type StreamResponse } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { principalKey } from "@runmesh/platform/principal";
import { expect, test } from "vitest";
import { limitWatches } from "./limit-watches.ts";

type Streams = (request: StreamRequest) => Promise<StreamResponse>;

/** The interceptor over a stream that gives a message and then waits until its reader leaves. */
function limited(most: number) {
  async function* messages() {
    yield "a message";
    await new Promise(() => {});
  }
  const next = (async () => ({ stream: true, message: messages() })) as unknown as Parameters<
    ReturnType<typeof limitWatches>
  >[0];
  const streams = limitWatches(most)(next) as unknown as Streams;
  return async (name: string, method: unknown = RunService.method.watchRuns) => {
    const leave = new AbortController();
    const contextValues = createContextValues();
    contextValues.set(principalKey, { tenantId: 1, tenant: "t", name, roles: ["viewer"] });
    const request = { stream: true, method, contextValues, signal: leave.signal } as unknown as StreamRequest;
    return { message: (await streams(request)).message[Symbol.asyncIterator](), leave };
  };
}

test("beyond its watches a credential is OVERLOADED, another is not, and one whose caller left makes room", async () => {
  const open = limited(2);
  const first = await open("a");
  await open("a");

  await expect(open("a")).rejects.toMatchObject({ reason: "OVERLOADED" });
  await open("b");
  first.leave.abort();
  await open("a");

  await expect(open("a")).rejects.toMatchObject({ reason: "OVERLOADED" });
});

test("a watch that is read makes room once when it ends, however it does", async () => {
  const open = limited(1);
  const { message, leave } = await open("a");

  expect(await message.next()).toEqual({ done: false, value: "a message" });
  await message.return!();
  leave.abort();
  await open("a");

  await expect(open("a")).rejects.toMatchObject({ reason: "OVERLOADED" });
});

test("sessions of workers are no watches", async () => {
  const open = limited(1);

  for (let i = 0; i < 3; i++) await open("worker", LeaseService.method.attach);
});
