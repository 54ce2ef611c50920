import { setTimeout as delay } from "node:timers/promises";
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { RENEWAL_THREAD } from "./generated/renewal-thread.ts";
import { type FromThread, type Session, SHARED, type ThreadOptions, type ToThread } from "./renewal-protocol.ts";

export interface SessionEvents {
  onAttached(session: Session): void;
  /** Every lease is lost. */
  onClosed(): void;
  onLost(leases: readonly (readonly [fence: bigint, cause: number])[]): void;
  onRenewed(): void;
  onLogged(message: Extract<FromThread, { kind: "logged" }>): void;
  onUnlogged(message: Extract<FromThread, { kind: "unlogged" }>): void;
  onRefused(refusal: Extract<FromThread, { kind: "refused" }>): void;
  onTrouble(message: string): void;
}

/** The worker's end of the thread that keeps its session and leases. */
export interface SessionThread {
  /** Undefined between one session and the next. */
  readonly current: Session | undefined;
  /** Hands the leases of one answer to the thread, and answers their batch. */
  hold(session: Session, leases: readonly LeasedTask[], trustedUntil: number): number;
  drop(fences: readonly bigint[]): void;
  tell(message: Omit<Extract<ToThread, { kind: "tell" }>, "kind">): void;
  closed(sessionId: bigint): void;
  /** Until when a lease of that batch may be relied on, by the monotonic clock. */
  trustedUntil(batch: number, own: number): number;
  /** Takes in what was told and not yet received, so that no lost lease is started. */
  receive(): void;
  /** Resolves when a renewal has told the server that nothing is being acquired. */
  settle(): Promise<void>;
  close(): Promise<void>;
}

const RESPAWN_MS = 1_000;
/** A lease that has ended may be named in a renewal for so long. */
const DROP_MS = 20;

export function startSessionThread(options: Omit<ThreadOptions, "shared">, events: SessionEvents): SessionThread {
  const memory = new SharedArrayBuffer(SHARED.BYTES);
  const shared = new BigInt64Array(memory);
  let current: Session | undefined;
  let batch = 0;
  let lostCount = 0n;
  let closing = false;
  let settled = () => {};
  let dropped: bigint[] = [];
  let dropTimer: NodeJS.Timeout | undefined;
  let [thread, port] = spawn();

  function spawn(): [Worker, MessagePort] {
    const channel = new MessageChannel();
    channel.port1.on("message", handle);
    const worker = new Worker(RENEWAL_THREAD, {
      eval: true,
      execArgv: [],
      name: "runmesh-renewals",
      workerData: { options: { ...options, shared: memory }, port: channel.port2 },
      transferList: [channel.port2],
    });
    worker.on("error", (error) => events.onTrouble(`the renewal thread failed: ${error.message}`));
    worker.on("exit", () => void respawn());
    return [worker, channel.port1];
  }

  /** A thread that died took its session's stream along: the next one attaches anew. */
  async function respawn(): Promise<void> {
    if (closing) return;
    port.close();
    handle({ kind: "closed" });
    await delay(RESPAWN_MS);
    if (!closing) [thread, port] = spawn();
  }

  function handle(message: FromThread): void {
    switch (message.kind) {
      case "attached":
        current = message;
        events.onAttached(message);
        break;
      case "closed":
        current = undefined;
        settled();
        events.onClosed();
        break;
      case "lost":
        lostCount++;
        events.onLost(message.leases);
        break;
      case "renewed":
        events.onRenewed();
        break;
      case "logged":
        events.onLogged(message);
        break;
      case "unlogged":
        events.onUnlogged(message);
        break;
      case "settled":
        settled();
        break;
      case "refused":
        events.onRefused(message);
        break;
      case "trouble":
        events.onTrouble(message.message);
        break;
    }
  }

  function post(message: ToThread): void {
    postDropped();
    port.postMessage(message);
  }

  /** Each message wakes the thread, and nothing hangs on these: they go with the next, or after a moment. */
  function postDropped(): void {
    clearTimeout(dropTimer);
    dropTimer = undefined;
    if (dropped.length === 0) return;
    port.postMessage({ kind: "drop", fences: BigInt64Array.from(dropped) } satisfies ToThread);
    dropped = [];
  }

  return {
    get current() {
      return current;
    },
    hold(session, leases, trustedUntil) {
      const pairs = new BigInt64Array(leases.length * 2);
      for (const [i, lease] of leases.entries()) {
        pairs[2 * i] = lease.taskId;
        pairs[2 * i + 1] = lease.fence;
      }
      post({ kind: "hold", sessionId: session.sessionId, batch: ++batch, trustedUntil, leases: pairs });
      return batch;
    },
    drop(fences) {
      for (const fence of fences) dropped.push(fence);
      dropTimer ??= setTimeout(postDropped, DROP_MS);
    },
    tell: (message) => post({ kind: "tell", ...message }),
    closed: (sessionId) => post({ kind: "closed", sessionId }),
    trustedUntil(of, own) {
      // The batch is read first: a renewal covers whatever an earlier one did.
      const covered = of <= Number(Atomics.load(shared, SHARED.COVERED_BATCH));
      return covered ? Math.max(own, Number(Atomics.load(shared, SHARED.TRUSTED_UNTIL))) : own;
    },
    receive() {
      while (lostCount < Atomics.load(shared, SHARED.LOST_COUNT)) {
        const received = receiveMessageOnPort(port);
        if (received === undefined) return;
        handle(received.message as FromThread);
      }
    },
    settle: () =>
      new Promise<void>((resolve) => {
        settled = resolve;
        if (current === undefined) resolve();
        else post({ kind: "settle" });
      }),
    async close() {
      closing = true;
      post({ kind: "close" });
      const exit = new Promise((resolve) => thread.once("exit", resolve));
      await Promise.race([exit, delay(1_000, undefined, { ref: false })]);
      await thread.terminate();
      port.close();
    },
  };
}
