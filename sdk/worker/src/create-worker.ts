import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { type AnyWorkflow, connect, type Handler, MeshError } from "@runmesh/client";
import { backoffMs, createServiceClient, createTransport, isTransient } from "@runmesh/client/internal";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { Attempt } from "./attempt.ts";
import { monotonicMs } from "./clock.ts";
import { createDurableCalls } from "./durable-calls.ts";
import { createExchange } from "./exchange.ts";
import { type SessionThread, startSessionThread } from "./session.ts";
import { createStartTeller } from "./start-teller.ts";
import { createSweeper } from "./sweeper.ts";
import { createTaskRunner } from "./task-runner.ts";

export interface WorkerOptions {
  /** The gateway's, as in "http://localhost:7400", or a lease-manager's. */
  readonly url: string;
  readonly apiKey?: string | undefined;
  /** What this worker can do: `task.handle(…)` of each, 1 to 1,000 of different names. */
  readonly handlers: readonly Handler[];
  /** Registered at the start, so that they can be started by name. */
  readonly workflows?: readonly AnyWorkflow[];
  /** Handlers that run at a time, 1 to 9,000. Default 10. */
  readonly slots?: number;
  /** Default ["default"]. */
  readonly queues?: readonly string[];
  /** As in "gpu" or "region=eu". */
  readonly capabilities?: readonly string[];
  /** Tasks leased ahead of free slots, at most 1,000. By default as many as start within about 50 ms. */
  readonly prefetch?: number;
  /** Shown to people, at most 128 bytes. Default the host's name and the process id. */
  readonly name?: string;
  /** Length of a lease, 1 s to 10 min. Default 15 s. A task whose process is gone runs again after it at the latest. */
  readonly leaseMs?: number;
  /** Told what people should know. Default: warnings to the console. */
  readonly log?: (level: "info" | "warn", message: string) => void;
  /** How long `stop` waits for running handlers before it aborts them. Default 30 s. */
  readonly gracefulStopMs?: number;
  /** Signals that stop the worker and then end the process, as in ["SIGTERM", "SIGINT"]. Default none. */
  readonly stopOn?: readonly NodeJS.Signals[];
}

export interface RunMeshWorker {
  /** Resolves when the mesh knows the worker; keeps trying while the mesh is not reachable. */
  start(): Promise<void>;
  /** Takes nothing more, waits for running handlers, and gives the rest back. */
  stop(): Promise<void>;
}

const MAX_PREFETCH = 1_000;
/** What is prefetched by default should start within this, and not be many times the slots. */
const PREFETCH_MS = 50;
const PREFETCH_PER_SLOT = 5;
/** A default prefetch that waited longer is given back: the handlers before it turned out slow. */
const STALE_MS = 1_000;
/** How long aborted handlers may take to end. */
const ABORTED_MS = 1_000;
const CALLS = { timeoutMs: 30_000, attempts: 1 };

/** Creates a worker: it pulls tasks under leases that a thread of its own renews, and runs their handlers. */
export function createWorker(options: WorkerOptions): RunMeshWorker {
  const handlers = indexHandlers(options.handlers);
  const slots = within("slots", options.slots ?? 10, 1, 9_000);
  const fixedPrefetch =
    options.prefetch === undefined ? undefined : within("prefetch", options.prefetch, 0, MAX_PREFETCH);
  const name = options.name ?? `${hostname()}-${process.pid}`;
  const say =
    options.log ?? ((level, message) => void (level === "warn" && console.warn(`runmesh ${name}: ${message}`)));
  const transport = createTransport(options);
  const client = createServiceClient(LeaseService, transport, CALLS);
  let thread: SessionThread | undefined;
  let starting: Promise<void> | undefined;
  let stopping: Promise<void> | undefined;
  let attached = { resolve: () => {}, reject: (_: unknown) => {} };

  const trustedUntil = (attempt: Attempt) =>
    thread === undefined ? 0 : thread.trustedUntil(attempt.batch, attempt.ownTrustedUntil);

  const runner = createTaskRunner({
    handlers,
    slots,
    trustedUntil,
    receive: () => thread?.receive(),
    async fetchParams({ lease: { taskId, fence } }) {
      const { sessionId = 0n, sessionToken = "" } = thread?.current ?? {};
      const request = { sessionId, sessionToken, taskId, fence };
      return (await paramsClient.getTaskParams(request)).paramsJson;
    },
    tellStart: createStartTeller({
      client: createServiceClient(LeaseService, transport, { timeoutMs: 120_000, attempts: 100 }),
      session: () => thread?.current,
    }),
    report: (attempt, outcome) => {
      if (outcome.kind !== "dropped") exchange.report(attempt, outcome);
    },
    onDeadline: (at) => sweeper.wakeAt(at),
    createHost: createDurableCalls({
      server: options,
      transport,
      session: () => thread?.current,
      onSuspended(attempt) {
        thread?.drop([attempt.lease.fence]);
        runner.suspended(attempt);
        exchange.schedule();
      },
    }),
  });
  const paramsClient = createServiceClient(LeaseService, transport, { timeoutMs: 10_000, attempts: 4 });

  const exchange = createExchange({
    client,
    session: () => thread?.current,
    room: () => slots + prefetch() - runner.running - runner.queued,
    accept(session, tasks, sentUntil) {
      if (thread === undefined) return;
      // Not to be started before a renewal has confirmed them.
      const until = sweeper.hasStalled ? 0 : sentUntil;
      runner.accept(tasks, thread.hold(session, tasks, until), until);
      if (stopping !== undefined) runner.releaseQueued();
    },
    answered(attempts) {
      thread?.drop(attempts.map((attempt) => attempt.lease.fence));
      runner.forget(attempts);
    },
    closed: (sessionId) => thread?.closed(sessionId),
    onTrouble: (message) => say("warn", message),
  });

  const sweeper = createSweeper({
    held: runner.held,
    trustedUntil,
    tell: (message) => thread?.tell(message),
    onSwept() {
      const since = runner.queuedSince;
      if (fixedPrefetch === undefined && since !== undefined && monotonicMs() - since > STALE_MS) {
        runner.releaseQueued();
      }
      exchange.schedule();
    },
  });

  function prefetch(): number {
    if (fixedPrefetch !== undefined) return fixedPrefetch;
    const handlerMs = Math.max(runner.meanMs, sweeper.longestMs);
    if (handlerMs === 0) return 0;
    return Math.min(MAX_PREFETCH, slots * PREFETCH_PER_SLOT, Math.floor((slots * PREFETCH_MS) / handlerMs));
  }

  function open(): SessionThread {
    return startSessionThread(
      {
        url: options.url,
        apiKey: options.apiKey ?? "",
        name,
        handlers: [...handlers.keys()],
        queues: options.queues ?? ["default"],
        capabilities: options.capabilities ?? [],
        slots,
        leaseMs: options.leaseMs ?? 15_000,
      },
      {
        onAttached({ sessionId }) {
          say("info", `attached as session ${sessionId}`);
          attached.resolve();
          exchange.schedule();
        },
        onClosed() {
          runner.loseAll();
          exchange.discard();
        },
        onLost: (leases) => runner.lose(leases),
        onRenewed: () => runner.pump(),
        onLogged: ({ lines }) => sweeper.logged(lines),
        onUnlogged: ({ lines }) => sweeper.unlogged(lines),
        onRefused: ({ reason, message, advice }) => attached.reject(new MeshError(reason, message, { advice })),
        onTrouble: (message) => say("warn", message),
      },
    );
  }

  async function register(): Promise<void> {
    if (!options.workflows?.length) return;
    const mesh = connect(options);
    for (let attempt = 1; stopping === undefined; attempt++) {
      try {
        await Promise.all(options.workflows.map((workflow) => mesh.register(workflow)));
        break;
      } catch (error) {
        if (!(error instanceof MeshError) || !isTransient(error)) throw error;
        say("warn", `registering workflows: ${error.reason}: ${error.message}`);
        await delay(backoffMs(attempt, error));
      }
    }
    mesh.close();
  }

  async function start(): Promise<void> {
    const isAttached = new Promise<void>((resolve, reject) => {
      attached = { resolve, reject };
    });
    try {
      await register();
      if (stopping !== undefined) return;
      thread = open();
      sweeper.start();
      for (const signal of options.stopOn ?? []) process.once(signal, onSignal);
      await isAttached;
    } catch (error) {
      await stopOnce();
      throw error;
    }
  }

  async function stop(): Promise<void> {
    exchange.stopAcquiring();
    runner.releaseQueued();
    await Promise.race([runner.idle(), delay(options.gracefulStopMs ?? 30_000, undefined, { ref: false })]);
    runner.abortRunning();
    await Promise.race([runner.idle(), delay(ABORTED_MS, undefined, { ref: false })]);
    runner.releaseRunning();
    await Promise.race([exchange.flushed(), delay(ABORTED_MS * 5, undefined, { ref: false })]);
    // The calls that were out when acquiring ended may have leased what never arrived.
    if (thread !== undefined) await Promise.race([thread.settle(), delay(ABORTED_MS * 2, undefined, { ref: false })]);
    attached.resolve();
    exchange.close();
    sweeper.stop();
    await thread?.close();
    for (const signal of options.stopOn ?? []) process.off(signal, onSignal);
    transport.close();
  }

  function stopOnce(): Promise<void> {
    stopping ??= stop();
    return stopping;
  }

  /** Ends the process as the signal would have, once the work is given back. */
  function onSignal(signal: NodeJS.Signals): void {
    void stopOnce().finally(() => process.kill(process.pid, signal));
  }

  return {
    start() {
      starting ??= start();
      return starting;
    },
    stop: stopOnce,
  };
}

function indexHandlers(handlers: readonly Handler[]): Map<string, Handler> {
  const index = new Map(handlers.map((handler) => [handler.task, handler]));
  if (index.size === 0) throw new TypeError("a worker needs at least one handler");
  if (index.size !== handlers.length) {
    const twice = handlers.find((handler) => index.get(handler.task) !== handler);
    throw new TypeError(`two handlers are for the task ${twice?.task}`);
  }
  return index;
}

function within(option: string, value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new TypeError(`${option} must be an integer from ${least} to ${most}, not ${value}`);
}
