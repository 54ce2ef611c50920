import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { ErrorDetailSchema, Reason } from "@runmesh/contracts/error/v1/error_pb";
import type {
  CompletedTask,
  FailedTask,
  HeldLease,
  LeasedTask,
  ReleasedTask,
} from "@runmesh/contracts/lease/v1/lease_pb";
import { LeasedTaskSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import {
  type AttachRequest,
  type AttachResponse,
  AttachResponseSchema,
  type ExchangeRequest,
  LeaseService,
  LostLease_Cause,
  type RenewLeasesRequest,
} from "@runmesh/contracts/lease/v1/lease_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";

/** A lease service in memory: it leases what a test adds, expires what is not renewed, and keeps what it was told. */
export interface FakeLeases extends AsyncDisposable {
  readonly url: string;
  readonly attaches: AttachRequest[];
  readonly exchanges: ExchangeRequest[];
  readonly renewals: RenewLeasesRequest[];
  readonly completed: CompletedTask[];
  readonly failed: FailedTask[];
  readonly released: ReleasedTask[];
  readonly registered: string[];
  /** Leases that are held now, by fence. */
  readonly leased: Map<bigint, { task: LeasedTask; expiresAt: number; held?: HeldLease }>;
  /** How many leases ran out. */
  expiredCount(): number;
  /** Answers of the next exchanges are lost on their way: the call is handled, and fails. */
  loseAnswers: number;
  /** Refuses every call but Attach with UNAVAILABLE. */
  down: boolean;
  refuseAttach: Reason | undefined;
  add(...tasks: MessageInitShape<typeof LeasedTaskSchema>[]): void;
  /** Ends a lease and tells so over the stream. */
  lose(fence: bigint, cause: LostLease_Cause): void;
  closeSession(): void;
  breakStreams(): void;
  /** Resolves when `done` holds; looks again after each call. */
  until(done: () => boolean): Promise<void>;
}

export async function startFakeLeases(leaseMs = 15_000): Promise<FakeLeases> {
  const ready: LeasedTask[] = [];
  const sockets = new Set<Socket>();
  const streams = new Set<(message: AttachResponse["message"] | "end") => void>();
  const answers = new Map<string, LeasedTask[]>();
  const waiting = new Set<() => void>();
  let sessionId = 0n;
  let fence = 100n;

  const changed = () => {
    for (const look of [...waiting]) look();
  };
  const refuse = (reason: Reason, code: Code) =>
    new ConnectError("refused", code, undefined, [
      { desc: ErrorDetailSchema, value: create(ErrorDetailSchema, { reason }) },
    ]);

  function check(request: { sessionId: bigint }): void {
    if (fake.down) throw refuse(Reason.UNAVAILABLE, Code.Unavailable);
    if (request.sessionId !== sessionId) throw refuse(Reason.SESSION_CLOSED, Code.FailedPrecondition);
    const now = performance.now();
    for (const [key, lease] of fake.leased) {
      if (lease.expiresAt > now) continue;
      fake.leased.delete(key);
      expired++;
    }
  }
  let expired = 0;

  function end<T extends { fence: bigint }>(items: T[], into: T[]) {
    return items.map((item) => {
      if (!fake.leased.delete(item.fence)) return { error: { reason: Reason.FENCE_STALE } };
      into.push(item);
      return {};
    });
  }

  function lease(max: number): LeasedTask[] {
    const tasks = ready.splice(0, max);
    for (const task of tasks) {
      task.fence = ++fence;
      fake.leased.set(task.fence, { task, expiresAt: performance.now() + leaseMs });
    }
    return tasks;
  }

  const fake: Omit<FakeLeases, "url" | typeof Symbol.asyncDispose> = {
    attaches: [],
    exchanges: [],
    renewals: [],
    completed: [],
    failed: [],
    released: [],
    registered: [],
    leased: new Map(),
    expiredCount: () => expired,
    loseAnswers: 0,
    down: false,
    refuseAttach: undefined,
    add(...tasks) {
      for (const task of tasks) {
        ready.push(
          create(LeasedTaskSchema, { taskId: fence * 10n + BigInt(ready.length), key: "k", attempt: 1, ...task }),
        );
      }
      changed();
    },
    lose(lost, cause) {
      const taskId = fake.leased.get(lost)?.task.taskId ?? 0n;
      fake.leased.delete(lost);
      const message = create(AttachResponseSchema, {
        message: { case: "lost", value: { leases: [{ taskId, fence: lost, cause }] } },
      }).message;
      for (const send of streams) send(message);
    },
    closeSession() {
      sessionId = -1n;
      fake.leased.clear();
      fake.breakStreams();
    },
    breakStreams() {
      for (const send of streams) send("end");
    },
    async until(done) {
      while (!done()) {
        const next = Promise.withResolvers<void>();
        waiting.add(next.resolve);
        await next.promise;
        waiting.delete(next.resolve);
      }
    },
  };

  const routes = (router: ConnectRouter) => {
    router.service(WorkflowService, {
      registerWorkflow({ definition }) {
        fake.registered.push(definition!.name);
        return { version: { version: 1, contentHash: "h" } };
      },
    });
    router.service(LeaseService, {
      async *attach(request, context) {
        if (fake.refuseAttach !== undefined) throw refuse(fake.refuseAttach, Code.Unauthenticated);
        if (request.sessionId !== 0n && request.sessionId !== sessionId) {
          throw refuse(Reason.SESSION_CLOSED, Code.FailedPrecondition);
        }
        fake.attaches.push(request);
        if (request.sessionId === 0n) sessionId = BigInt(fake.attaches.length) * 1_000n;
        const queue: (AttachResponse["message"] | "end")[] = [];
        let wake = () => {};
        const send = (message: AttachResponse["message"] | "end") => {
          queue.push(message);
          wake();
        };
        streams.add(send);
        context.signal.addEventListener("abort", () => send("end"));
        changed();
        try {
          const renewMs = Math.floor(leaseMs / 3);
          yield { message: { case: "attached", value: { sessionId, sessionToken: "t", epoch: 1n, leaseMs, renewMs } } };
          for (;;) {
            const message = queue.shift();
            if (message === "end") return;
            if (message !== undefined) yield create(AttachResponseSchema, { message });
            else await new Promise<void>((resolve) => (wake = resolve));
          }
        } finally {
          streams.delete(send);
        }
      },
      async exchange(request, context) {
        check(request);
        fake.exchanges.push(request);
        const results = {
          completed: end(request.completed, fake.completed),
          failed: end(request.failed, fake.failed),
          released: end(request.released, fake.released),
        };
        let tasks = answers.get(request.requestId) ?? lease(request.max);
        changed();
        const until = performance.now() + request.waitMs;
        while (tasks.length === 0 && performance.now() < until && !context.signal.aborted) {
          const next = Promise.withResolvers<void>();
          waiting.add(next.resolve);
          context.signal.addEventListener("abort", () => next.resolve());
          await Promise.race([next.promise, delay(until - performance.now())]);
          waiting.delete(next.resolve);
          if (!context.signal.aborted) tasks = lease(request.max);
        }
        answers.set(request.requestId, tasks);
        if (fake.loseAnswers > 0) {
          fake.loseAnswers--;
          throw refuse(Reason.UNAVAILABLE, Code.Unavailable);
        }
        return { ...results, tasks };
      },
      renewLeases(request) {
        check(request);
        fake.renewals.push(request);
        const lost = [];
        for (const held of request.leases) {
          const lease = fake.leased.get(held.fence);
          if (lease === undefined)
            lost.push({ taskId: held.taskId, fence: held.fence, cause: LostLease_Cause.EXPIRED });
          else fake.leased.set(held.fence, { ...lease, held, expiresAt: performance.now() + leaseMs });
        }
        if (!request.acquiring) {
          const named = new Set(request.leases.map((held) => held.fence));
          for (const key of fake.leased.keys()) if (!named.has(key)) fake.leased.delete(key);
        }
        changed();
        return { lost };
      },
      getTaskParams: ({ fence: asked }) => ({
        paramsJson: new TextEncoder().encode(JSON.stringify({ fetched: String(asked) })),
      }),
    });
  };

  const server = createServer(connectNodeAdapter({ routes }));
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return Object.assign(fake, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  }) as FakeLeases;
}
