import { defineTask, defineWorkflow } from "@runmesh/client";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { LostLease_Cause } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { expect, test } from "vitest";
import { z } from "zod";
import { type FakeLeases, startFakeLeases } from "../test/fake-leases.ts";
import {
  createWorker,
  nonRetryable,
  type RunMeshWorker,
  retryAfter,
  TaskAbortedError,
  type WorkerOptions,
} from "./index.ts";

const echo = defineTask({ name: "echo", input: z.any(), output: z.any() });
const double = defineTask({
  name: "double",
  input: z.object({ n: z.number() }),
  output: z.object({ twice: z.number() }),
});

const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const task = (handler: string, params: unknown) => ({ handler, paramsJson: bytes(params) });
const outputs = (fake: FakeLeases) =>
  fake.completed.map((t) => JSON.parse(new TextDecoder().decode(t.outputPayload.value as Uint8Array)));

async function startWorker(
  fake: FakeLeases,
  options: Omit<WorkerOptions, "url">,
): Promise<AsyncDisposable & RunMeshWorker> {
  const worker = createWorker({ url: fake.url, gracefulStopMs: 200, log: () => {}, ...options });
  await worker.start();
  return { ...worker, [Symbol.asyncDispose]: () => worker.stop() };
}

test("a worker registers its workflows, attaches as what it is, and completes tasks", async () => {
  await using fake = await startFakeLeases();
  const workflow = defineWorkflow({ name: "w", input: z.any(), build: (w) => w.task("a", echo, 1).output });

  await using _ = await startWorker(fake, {
    handlers: [double.handle(({ n }) => ({ twice: 2 * n }))],
    workflows: [workflow],
    slots: 3,
    name: "me",
    queues: ["q"],
    capabilities: ["gpu"],
  });
  fake.add(task("double", { n: 4 }));
  await fake.until(() => fake.completed.length === 1);

  expect(fake.registered).toEqual(["w"]);
  expect(fake.attaches[0]).toMatchObject({
    name: "me",
    handlers: ["double"],
    queues: ["q"],
    capabilities: ["gpu"],
    slots: 3,
    leaseMs: 15_000,
  });
  expect(outputs(fake)).toEqual([{ twice: 8 }]);
});

test("at most `slots` handlers run at a time, and every task of a backlog is completed once", async () => {
  await using fake = await startFakeLeases();
  let running = 0;
  let most = 0;
  fake.add(...Array.from({ length: 500 }, (_, i) => task("echo", i)));

  await using _ = await startWorker(fake, {
    slots: 7,
    prefetch: 50,
    handlers: [
      echo.handle(async (input) => {
        most = Math.max(most, ++running);
        await new Promise((resolve) => setImmediate(resolve));
        running--;
        return input;
      }),
    ],
  });
  await fake.until(() => fake.completed.length === 500);

  expect(most).toBe(7);
  expect(new Set(outputs(fake)).size).toBe(500);
  expect(Math.max(...fake.exchanges.map((e) => e.max))).toBeLessThanOrEqual(57);
});

test("a finished task is reported while a long poll is parked", async () => {
  await using fake = await startFakeLeases();
  await using _ = await startWorker(fake, { slots: 2, handlers: [echo.handle((input) => input)] });
  await fake.until(() => fake.exchanges.some((e) => e.waitMs > 0));

  const before = performance.now();
  fake.add(task("echo", 1));
  await fake.until(() => fake.completed.length === 1);

  expect(performance.now() - before).toBeLessThan(1_000);
});

test("the handler is given its lease and what the attempt before left", async () => {
  await using fake = await startFakeLeases();
  const seen: unknown[] = [];
  await using _ = await startWorker(fake, {
    handlers: [
      echo.handle((input, ctx) => {
        const { runId, taskId, key, workflow, attempt, fence, lastProgress, traceparent, signal } = ctx;
        seen.push({ runId, taskId, key, workflow, attempt, fence, lastProgress, traceparent, aborted: signal.aborted });
        return input;
      }),
    ],
  });

  fake.add({ ...task("echo", 1), taskId: 77n, runId: 9n, workflow: "w", attempt: 3, progressJson: bytes({ done: 5 }) });
  await fake.until(() => fake.completed.length === 1);

  expect(seen).toEqual([
    {
      runId: "9",
      taskId: "77",
      key: "k",
      workflow: "w",
      attempt: 3,
      fence: 101n,
      lastProgress: { done: 5 },
      traceparent: undefined,
      aborted: false,
    },
  ]);
});

test("params that the answer had no room for are fetched", async () => {
  await using fake = await startFakeLeases();
  await using _ = await startWorker(fake, { handlers: [echo.handle((input) => input)] });

  fake.add({ handler: "echo", paramsDeferred: true });
  await fake.until(() => fake.completed.length === 1);

  expect(outputs(fake)).toEqual([{ fetched: "101" }]);
});

class CardDeclined extends Error {}

test.each<[string, () => unknown, object]>([
  [
    "an error by its class",
    () => {
      throw new CardDeclined("no");
    },
    { type: "CardDeclined", message: "no", retryable: true },
  ],
  [
    "an error by its name",
    () => {
      throw Object.assign(new Error("no"), { name: "Mine" });
    },
    { type: "Mine", retryable: true },
  ],
  [
    "what is no error",
    () => {
      throw { a: 1 };
    },
    { type: "NonError", message: '{"a":1}', retryable: true },
  ],
  [
    "a final one",
    () => {
      throw nonRetryable(new CardDeclined("no"));
    },
    { type: "CardDeclined", message: "no", retryable: false },
  ],
  [
    "wrong output",
    () => ({ twice: "x" }),
    { type: "INVALID_FIELD", message: expect.stringMatching(/^output\.twice: /), retryable: false },
  ],
  [
    "output that is too large",
    () => ({ twice: 1, more: "x".repeat(300_000) }),
    { type: "TOO_LARGE", retryable: false },
  ],
])("%s is reported as the failure it is", async (_, run, error) => {
  await using fake = await startFakeLeases();
  const loose = defineTask({ name: "loose", input: z.any(), output: z.looseObject({ twice: z.number() }) });
  await using _worker = await startWorker(fake, { handlers: [loose.handle(run as never)] });

  fake.add(task("loose", null));
  await fake.until(() => fake.failed.length === 1);

  expect(fake.failed[0]!.error).toMatchObject(error);
});

test("wrong input fails before the handler runs, and is not tried again", async () => {
  await using fake = await startFakeLeases();
  await using _ = await startWorker(fake, { handlers: [double.handle(({ n }) => ({ twice: 2 * n }))] });

  fake.add(task("double", { n: "x" }));
  await fake.until(() => fake.failed.length === 1);

  expect(fake.failed[0]!.error).toMatchObject({ type: "INVALID_FIELD", retryable: false });
  expect(fake.failed[0]!.error!.message).toMatch(/^input\.n: /);
});

test("retryAfter says how long the next attempt waits", async () => {
  await using fake = await startFakeLeases();
  await using _ = await startWorker(fake, {
    handlers: [
      echo.handle(() => {
        throw retryAfter("1m30s", new Error("busy"));
      }),
    ],
  });

  fake.add(task("echo", null));
  await fake.until(() => fake.failed.length === 1);

  expect(fake.failed[0]).toMatchObject({ retryAfter: { seconds: 90n }, error: { retryable: true, message: "busy" } });
});

test("an exchange whose answer was lost is repeated as it was, and nothing runs twice", async () => {
  await using fake = await startFakeLeases();
  let runs = 0;
  await using _ = await startWorker(fake, {
    handlers: [
      echo.handle((input) => {
        runs++;
        return input;
      }),
    ],
  });
  await fake.until(() => fake.exchanges.length > 0);

  fake.loseAnswers = 2;
  fake.add(task("echo", 1));
  await fake.until(() => fake.completed.length === 1 && fake.leased.size === 0);

  expect(runs).toBe(1);
  expect(fake.completed.length).toBe(1);
});

/** A handler that runs until its signal aborts, and tells why. */
function hanging() {
  const begun = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<unknown>();
  const handler = echo.handle(
    (_, { signal }) =>
      new Promise((_resolve, reject) => {
        begun.resolve();
        signal.addEventListener("abort", () => {
          aborted.resolve(signal.reason);
          reject(signal.reason);
        });
      }),
  );
  return { handler, begun: begun.promise, aborted: aborted.promise };
}

test.each([
  [LostLease_Cause.RUN_CANCELLED, "cancelled"],
  [LostLease_Cause.EXPIRED, "lease_lost"],
  [LostLease_Cause.TIMED_OUT, "timeout"],
])("a lease lost with cause %s aborts its handler with %s, and nothing is reported", async (cause, why) => {
  await using fake = await startFakeLeases();
  const { handler, begun, aborted } = hanging();
  await using worker = await startWorker(fake, { handlers: [handler] });
  fake.add(task("echo", 1));
  await begun;

  fake.lose(101n, cause);
  const reason = await aborted;
  await worker.stop();

  expect(reason).toBeInstanceOf(TaskAbortedError);
  expect(reason).toMatchObject({ cause: why });
  expect([fake.completed, fake.failed, fake.released]).toEqual([[], [], []]);
});

test("the lost lease of an exclusive task is released when its handler has ended", async () => {
  await using fake = await startFakeLeases();
  const { handler, begun } = hanging();
  await using _ = await startWorker(fake, { handlers: [handler] });
  fake.add({ ...task("echo", 1), exclusive: true });
  await begun;

  fake.lose(101n, LostLease_Cause.EXPIRED);
  await fake.until(() => fake.exchanges.some((e) => e.released.some((r) => r.fence === 101n)));

  expect(fake.failed).toEqual([]);
});

test("an attempt that takes too long is aborted and fails as TIMED_OUT", async () => {
  await using fake = await startFakeLeases();
  const { handler, aborted } = hanging();
  await using _ = await startWorker(fake, { handlers: [handler] });

  fake.add({ ...task("echo", 1), startToClose: { seconds: 0n, nanos: 50_000_000 } });
  await fake.until(() => fake.failed.length === 1);

  expect(await aborted).toMatchObject({ cause: "timeout" });
  expect(fake.failed[0]!.error).toMatchObject({ type: "TIMED_OUT", retryable: true });
});

test("started, progress and log reach the server while the handler runs, and each line once", async () => {
  await using fake = await startFakeLeases();
  const go = Promise.withResolvers<void>();
  await using _ = await startWorker(fake, {
    handlers: [
      echo.handle(async (input, { log, progress }) => {
        log.info("first");
        progress({ done: 1 });
        await go.promise;
        log.error("last");
        return input;
      }),
    ],
  });

  fake.add(task("echo", 1));
  await fake.until(() => fake.renewals.some((r) => r.leases.some((l) => l.log.length > 0)));
  go.resolve();
  await fake.until(() => fake.completed.length === 1);
  const held = fake.renewals.flatMap((r) => r.leases);

  expect(held.some((l) => l.started)).toBe(true);
  expect(held.filter((l) => l.progressJson.length > 0).map((l) => new TextDecoder().decode(l.progressJson))).toEqual([
    '{"done":1}',
  ]);
  expect(held.flatMap((l) => l.log.map((line) => line.message))).toEqual(["first"]);
  expect(fake.completed[0]!.log.map((line) => line.message)).toEqual(["last"]);
});

test("a closed session is followed by a new one, and its handlers are aborted", async () => {
  await using fake = await startFakeLeases();
  const { handler, begun, aborted } = hanging();
  await using _ = await startWorker(fake, { handlers: [handler, double.handle(({ n }) => ({ twice: 2 * n }))] });
  fake.add(task("echo", 1));
  await begun;

  fake.closeSession();
  const reason = await aborted;
  fake.add(task("double", { n: 1 }));
  await fake.until(() => fake.completed.length === 1);

  expect(reason).toMatchObject({ cause: "lease_lost" });
  expect(fake.attaches.at(-1)!.sessionId).toBe(0n);
});

test("a stream that broke is opened again with the session's id, and its leases live on", async () => {
  await using fake = await startFakeLeases();
  const go = Promise.withResolvers<unknown>();
  await using _ = await startWorker(fake, { handlers: [echo.handle(() => go.promise)] });
  fake.add(task("echo", 1));
  await fake.until(() => fake.leased.size === 1);

  fake.breakStreams();
  await fake.until(() => fake.attaches.length === 2);
  go.resolve("x");
  await fake.until(() => fake.completed.length === 1);

  expect(fake.attaches[1]).toMatchObject({ sessionId: 1_000n, sessionToken: "t" });
  expect(outputs(fake)).toEqual(["x"]);
});

test("a worker that the mesh refuses does not start", async () => {
  await using fake = await startFakeLeases();
  fake.refuseAttach = Reason.UNAUTHENTICATED;

  const started = createWorker({ url: fake.url, handlers: [echo.handle((x) => x)], log: () => {} }).start();

  await expect(started).rejects.toMatchObject({ name: "MeshError", reason: "UNAUTHENTICATED" });
});

test("stop lets running handlers end, gives back what was prefetched, and leaves no lease", async () => {
  await using fake = await startFakeLeases();
  const begun = Promise.withResolvers<void>();
  const go = Promise.withResolvers<unknown>();
  await using worker = await startWorker(fake, {
    slots: 1,
    prefetch: 5,
    gracefulStopMs: 10_000,
    handlers: [
      echo.handle(() => {
        begun.resolve();
        return go.promise;
      }),
    ],
  });
  fake.add(...[1, 2, 3].map((n) => task("echo", n)));
  await begun.promise;
  await fake.until(() => fake.leased.size === 3);

  const stopped = worker.stop();
  await fake.until(() => fake.released.length === 2);
  go.resolve("done");
  await stopped;

  expect(outputs(fake)).toEqual(["done"]);
  expect(fake.leased.size).toBe(0);
  expect(fake.renewals.at(-1)!.acquiring).toBe(false);
});

test("when the grace is over, running handlers are aborted with `stopping` and given back", async () => {
  await using fake = await startFakeLeases();
  const { handler, begun, aborted } = hanging();
  await using worker = await startWorker(fake, { handlers: [handler], gracefulStopMs: 20 });
  fake.add(task("echo", 1));
  await begun;

  await worker.stop();

  expect(await aborted).toMatchObject({ cause: "stopping" });
  expect(fake.released.map((r) => r.fence)).toEqual([101n]);
  expect(fake.failed).toEqual([]);
});

test("a handler is aborted when its lease cannot be trusted any more, and reports RELEASED", async () => {
  await using fake = await startFakeLeases(1_000);
  const { handler, begun, aborted } = hanging();
  await using _ = await startWorker(fake, { handlers: [handler], leaseMs: 1_000 });
  fake.add(task("echo", 1));
  await begun;

  fake.down = true;
  const reason = await aborted;
  fake.down = false;
  await fake.until(() => fake.exchanges.some((e) => e.released.length === 1));

  expect(reason).toMatchObject({ cause: "lease_lost" });
  expect(fake.failed).toEqual([]);
});

test("wrong options are refused at once", () => {
  const handlers = [echo.handle((x) => x)];

  expect(() => createWorker({ url: "http://localhost", handlers: [] })).toThrow(/at least one handler/);
  expect(() => createWorker({ url: "http://localhost", handlers: [handlers[0]!, echo.handle((x) => x)] })).toThrow(
    /two handlers/,
  );
  expect(() => createWorker({ url: "http://localhost", handlers, slots: 0 })).toThrow(/slots must be/);
});
