import { Code, type ConnectError, type ConnectRouter, createClient, createContextValues } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { describe, expect, test } from "vitest";
import { createInProcessTransport, type InProcessOptions } from "./in-process.ts";
import { silentLog } from "./log.ts";
import { getPrincipal, principalKey } from "./principal.ts";
import { requestIdKey } from "./request-id.ts";
import { errorInterceptor, findErrorDetail } from "./rpc-errors.ts";

function rejection(call: Promise<unknown>): Promise<ConnectError> {
  return call.then(
    () => Promise.reject(new Error("the call was answered")),
    (error: unknown) => error as ConnectError,
  );
}

describe.each([
  { name: "handed over", serialize: false },
  { name: "serialized", serialize: true },
])("calls in one process, $name", ({ serialize }) => {
  const connect = (routes: (router: ConnectRouter) => void, options: Partial<InProcessOptions> = {}) =>
    createInProcessTransport(routes, { interceptors: [errorInterceptor({ log: silentLog })], ...options, serialize });

  test("a unary call carries its message, headers and trailers both ways", async () => {
    const transport = connect((router) =>
      router.service(RunService, {
        getRun(request, context) {
          context.responseHeader.set("x-seen", context.requestHeader.get("x-sent") ?? "");
          context.responseTrailer.set("x-last", "yes");
          return { run: { id: request.runId } };
        },
      }),
    );
    const seen: (string | null)[] = [];

    const answer = await createClient(RunService, transport).getRun(
      { runId: 7n },
      {
        headers: { "x-sent": "hello" },
        onHeader: (header) => seen.push(header.get("x-seen")),
        onTrailer: (trailer) => seen.push(trailer.get("x-last")),
      },
    );

    expect(answer.run?.id).toBe(7n);
    expect(seen).toEqual(["hello", "yes"]);
  });

  test("an error arrives with its code, message and detail, and a bug's message stays hidden", async () => {
    const transport = connect((router) =>
      router.service(RunService, {
        getRun: () => {
          throw new MeshError("OVERLOADED", "full", { retryAfterMs: 250 });
        },
        listRuns: () => {
          throw new Error("password=hunter2");
        },
      }),
    );
    const runs = createClient(RunService, transport);

    const overloaded = await rejection(runs.getRun({}));
    const bug = await rejection(runs.listRuns({}));

    expect(overloaded).toMatchObject({ code: Code.ResourceExhausted, rawMessage: "full" });
    expect(findErrorDetail(overloaded)).toMatchObject({
      reason: Reason.OVERLOADED,
      retryAfter: { nanos: 250_000_000 },
    });
    expect(bug.code).toBe(Code.Internal);
    expect(bug.rawMessage).not.toContain("hunter2");
  });

  test("without an error interceptor a bug is still hidden", async () => {
    const routes = (router: ConnectRouter) =>
      router.service(RunService, {
        getRun: () => {
          throw new Error("password=hunter2");
        },
      });
    const transport = connect((router) => void routes(router), { interceptors: [] });

    expect(await rejection(createClient(RunService, transport).getRun({}))).toMatchObject({
      code: Code.Internal,
      rawMessage: "internal error",
    });
  });

  test("an abort and a deadline reach the handler's signal and end the call", async () => {
    const ended: string[] = [];
    const transport = connect((router) =>
      router.service(RunService, {
        getRun: (_, { signal, timeoutMs }) =>
          new Promise((_resolve, reject) => {
            signal.addEventListener("abort", () => {
              ended.push(timeoutMs() === undefined ? "abort" : "deadline");
              reject(signal.reason);
            });
            started();
          }),
      }),
    );
    let started = () => {};
    const runs = createClient(RunService, transport);
    const abort = new AbortController();
    started = () => abort.abort();

    const aborted = await rejection(runs.getRun({}, { signal: abort.signal }));
    started = () => {};
    const late = await rejection(runs.getRun({}, { timeoutMs: 5 }));

    expect(aborted.code).toBe(Code.Canceled);
    expect(late.code).toBe(Code.DeadlineExceeded);
    expect(ended).toEqual(["abort", "deadline"]);
  });

  test("the principal and the request id go along, and other context values do not", async () => {
    const principal = { tenantId: 7, tenant: "acme", name: "ada", roles: ["viewer" as const] };
    let seen: unknown;
    const transport = connect((router) =>
      router.service(RunService, {
        getRun(_, context) {
          seen = { principal: getPrincipal(context), requestId: context.values.get(requestIdKey) };
          return {};
        },
      }),
    );
    const contextValues = createContextValues().set(principalKey, principal).set(requestIdKey, "r-1");

    await createClient(RunService, transport).getRun({}, { contextValues });

    expect(seen).toEqual({ principal, requestId: "r-1" });
  });

  test("a stream arrives in order, is pulled, and its error comes after its messages", async () => {
    let madeCount = 0;
    const transport = connect((router) =>
      router.service(RunService, {
        async *watchRun() {
          for (let i = 1n; i <= 3n; i++) {
            madeCount++;
            yield { change: { sequence: i } };
          }
          throw new MeshError("SLOW_CONSUMER", "too slow", { lastSequence: 3n });
        },
      }),
    );
    const seen: unknown[] = [];

    const watch = createClient(RunService, transport).watchRun({});
    const failed = await rejection(
      (async () => {
        for await (const { change } of watch) seen.push(change?.sequence);
      })(),
    );

    expect(seen).toEqual([1n, 2n, 3n]);
    expect(madeCount).toBe(3);
    expect(findErrorDetail(failed)).toMatchObject({ reason: Reason.SLOW_CONSUMER, lastSequence: 3n });
  });

  test("an abort ends a stream for its reader and its handler", async () => {
    const { promise: ended, resolve: handlerEnded } = Promise.withResolvers<void>();
    const transport = connect((router) =>
      router.service(RunService, {
        async *watchRun(_, { signal }) {
          signal.addEventListener("abort", () => handlerEnded());
          yield { change: { sequence: 1n } };
          await ended;
        },
      }),
    );
    const abort = new AbortController();

    const failed = await rejection(
      (async () => {
        for await (const _ of createClient(RunService, transport).watchRun({}, { signal: abort.signal })) abort.abort();
      })(),
    );
    await ended;

    expect(failed.code).toBe(Code.Canceled);
  });

  test("a shutdown ends a stream", async () => {
    const shutdown = new AbortController();
    const transport = connect(
      (router) =>
        router.service(RunService, {
          async *watchRun(_, { signal }) {
            const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
            yield {};
            await aborted;
          },
        }),
      { shutdownSignal: shutdown.signal },
    );
    let count = 0;

    for await (const _ of createClient(RunService, transport).watchRun({})) {
      count++;
      shutdown.abort();
    }

    expect(count).toBe(1);
  });

  test("a method that is not served is unimplemented", async () => {
    const transport = connect((router) => router.service(RunService, {}));

    expect((await rejection(createClient(RunService, transport).getRun({}))).code).toBe(Code.Unimplemented);
    expect((await rejection(createClient(TaskService, transport).getTask({}))).code).toBe(Code.Unimplemented);
  });
});

test("an abort also ends a handler that rests between two messages", async () => {
  const { promise: ended, resolve: handlerEnded } = Promise.withResolvers<void>();
  const transport = createInProcessTransport(
    (router) =>
      router.service(RunService, {
        async *watchRun() {
          try {
            for (;;) yield {};
          } finally {
            handlerEnded();
          }
        },
      }),
    { interceptors: [] },
  );
  const abort = new AbortController();

  const failed = await rejection(
    (async () => {
      for await (const _ of createClient(RunService, transport).watchRun({}, { signal: abort.signal })) abort.abort();
    })(),
  );
  await ended;

  expect(failed.code).toBe(Code.Canceled);
});
