import { createClient, createRouterTransport } from "@connectrpc/connect";
import { LeaseService, LostLease_Cause, type RenewLeasesRequest } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { LogLine_Level } from "@runmesh/contracts/task/v1/task_pb";
import { expect, test } from "vitest";
import { monotonicMs } from "./clock.ts";
import { createLeaseKeeper } from "./lease-keeper.ts";
import { type FromThread, SHARED } from "./renewal-protocol.ts";

const LEASE_MS = 3_000;

/** A keeper over a server that answers each renewal as the test says. */
function given(
  answer: (request: RenewLeasesRequest) => { lost?: { fence: bigint; cause: LostLease_Cause }[] } = () => ({}),
) {
  const renewals: RenewLeasesRequest[] = [];
  const posted: FromThread[] = [];
  const waiting = new Set<() => void>();
  const shared = new BigInt64Array(new SharedArrayBuffer(SHARED.BYTES));
  const transport = createRouterTransport(({ service }) =>
    service(LeaseService, {
      renewLeases(request) {
        renewals.push(request);
        return answer(request);
      },
    }),
  );
  const post = (message: FromThread) => {
    posted.push(message);
    for (const look of waiting) look();
  };
  const keeper = createLeaseKeeper(createClient(LeaseService, transport), shared, post, () => {});
  keeper.begin({ sessionId: 1n, sessionToken: "t", leaseMs: LEASE_MS, renewMs: LEASE_MS / 3 });
  let batch = 0;
  return {
    keeper,
    renewals,
    posted,
    shared,
    hold(...fences: bigint[]) {
      const leases = BigInt64Array.from(fences.flatMap((fence) => [fence * 10n, fence]));
      keeper.hold({ kind: "hold", sessionId: 1n, batch: ++batch, trustedUntil: monotonicMs() + LEASE_MS, leases });
    },
    tell: (fence: bigint, message: string) =>
      keeper.tell({
        kind: "tell",
        started: [fence],
        progress: [[fence, new TextEncoder().encode("1")]],
        log: [[fence, [{ atMs: 1_500, attempt: 1, level: LogLine_Level.INFO, message }]]],
        withinMs: 0,
      }),
    async until(kind: FromThread["kind"], count = 1) {
      while (posted.filter((message) => message.kind === kind).length < count) {
        const next = Promise.withResolvers<void>();
        waiting.add(next.resolve);
        await next.promise;
        waiting.delete(next.resolve);
      }
    },
    [Symbol.dispose]: () => keeper.end(),
  };
}

test("a renewal names every lease that is held, and extends their trust from when it was sent", async () => {
  using mesh = given();
  const before = monotonicMs();
  mesh.hold(1n, 2n);
  mesh.hold(3n);
  mesh.keeper.drop(BigInt64Array.of(2n));

  mesh.tell(1n, "hello");
  await mesh.until("renewed");

  expect(mesh.renewals[0]!.leases.map((l) => [l.taskId, l.fence, l.started])).toEqual([
    [10n, 1n, true],
    [30n, 3n, false],
  ]);
  expect(mesh.renewals[0]!.acquiring).toBe(true);
  expect(mesh.renewals[0]!.leases[0]!.log[0]).toMatchObject({
    time: { seconds: 1n, nanos: 500_000_000 },
    message: "hello",
  });
  expect(Number(mesh.shared[SHARED.COVERED_BATCH])).toBe(2);
  const trust = Number(mesh.shared[SHARED.TRUSTED_UNTIL]) - before;
  expect(trust).toBeGreaterThan(LEASE_MS - 400);
  expect(trust).toBeLessThan(LEASE_MS);
});

test("a lease that the server does not extend is told lost, and not named again", async () => {
  using mesh = given(({ leases }) =>
    leases.length === 2 ? { lost: [{ fence: 2n, cause: LostLease_Cause.RUN_CANCELLED }] } : {},
  );
  mesh.hold(1n, 2n);

  mesh.tell(1n, "");
  await mesh.until("renewed");
  mesh.tell(1n, "");
  await mesh.until("renewed", 2);

  expect(mesh.posted).toContainEqual({ kind: "lost", leases: [[2n, LostLease_Cause.RUN_CANCELLED]] });
  expect(mesh.shared[SHARED.LOST_COUNT]).toBe(1n);
  expect(mesh.renewals[1]!.leases.map((l) => l.fence)).toEqual([1n]);
});

test("a lease that was lost before its answer arrived is told lost when it arrives", () => {
  using mesh = given();

  mesh.keeper.lose([{ fence: 1n, cause: LostLease_Cause.RUN_CANCELLED }]);
  mesh.hold(1n);

  expect(mesh.posted).toEqual([{ kind: "lost", leases: [[1n, LostLease_Cause.RUN_CANCELLED]] }]);
});

test("what a failed renewal carried is said again with the next", async () => {
  let refusals = 1;
  using mesh = given(() => {
    if (refusals-- > 0) throw new Error("down");
    return {};
  });
  mesh.hold(1n);

  mesh.tell(1n, "hello");
  await mesh.until("renewed");

  expect(mesh.renewals.map((r) => [r.leases[0]!.log.length, r.leases[0]!.progressJson.length])).toEqual([
    [1, 1],
    [1, 1],
  ]);
  expect(mesh.posted.map((m) => m.kind)).toEqual(["logged", "unlogged", "trouble", "logged", "renewed"]);
});

test("settling renews with nothing being acquired, even when nothing is held, and says that the worker leaves", async () => {
  using mesh = given();

  mesh.keeper.settle();
  await mesh.until("settled");

  expect(mesh.renewals).toHaveLength(1);
  expect(mesh.renewals[0]).toMatchObject({ acquiring: false, leaving: true, leases: [] });
});
