import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { FailedTaskSchema, HeldLeaseSchema, ItemResult, LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import type {
  Attached,
  AttachRequestSchema,
  LeaseService,
  LostLease,
} from "@runmesh/contracts/lease/v1/lease_service_pb";
import { reasonName } from "./reason-name.ts";

/** Long enough for a machine that has other work to do; tests make leases run out by themselves. */
const LEASE_MS = 60_000;

export type Attach = MessageInitShape<typeof AttachRequestSchema>;

export interface LeaseKey {
  readonly taskId: bigint;
  readonly fence: bigint;
}

export interface AcquireOptions {
  readonly waitMs?: number;
  readonly requestId?: string;
}

/** A session whose calls a test makes by itself. What an item was answered is its reason, or "accepted". */
export interface MeshWorker {
  readonly attached: Attached;
  /** Goes with every call of the session. */
  readonly session: { readonly sessionId: bigint; readonly sessionToken: string };
  acquire(max: number, options?: AcquireOptions): Promise<LeasedTask[]>;
  /** The next task; waits up to 10 s for it. */
  acquireOne(options?: AcquireOptions): Promise<LeasedTask>;
  /** `output` is JSON text; null when left out. */
  complete(lease: LeaseKey, output?: string | Uint8Array): Promise<string>;
  fail(lease: LeaseKey, error?: MessageInitShape<typeof FailedTaskSchema>["error"], rest?: object): Promise<string>;
  release(lease: LeaseKey): Promise<string>;
  /** Answers the task ids that were lost. */
  renew(
    leases: readonly (LeaseKey | MessageInitShape<typeof HeldLeaseSchema>)[],
    acquiring?: boolean,
  ): Promise<bigint[]>;
  /** Says that the handlers run, and keeps holding the leases. */
  begin(...leases: readonly LeaseKey[]): Promise<void>;
  /** Takes tasks and completes them until none is ready. Answers their keys in that order. */
  drain(output?: (task: LeasedTask) => string | undefined): Promise<string[]>;
  /** The next lease that the stream told to be lost; waits up to 10 s for it. */
  lost(): Promise<LostLease>;
  close(): void;
}

export function outcomeOf(result: ItemResult | undefined): string {
  if (result === undefined) throw new Error("the item has no result");
  if (result.error === undefined) return "accepted";
  return reasonName(result.error.reason);
}

export async function attachWorker(leases: Client<typeof LeaseService>, attach: Attach): Promise<MeshWorker> {
  const left = new AbortController();
  const stream = leases.attach({ handlers: ["work"], leaseMs: LEASE_MS, ...attach }, { signal: left.signal });
  const messages = stream[Symbol.asyncIterator]();
  const first = (await messages.next()).value?.message;
  if (first?.case !== "attached") throw new Error(`the stream began with ${first?.case}`);
  const attached = first.value;
  const session = { sessionId: attached.sessionId, sessionToken: attached.sessionToken };
  const told: LostLease[] = [];
  const waiting: ((lease: LostLease) => void)[] = [];
  void readLost();

  async function readLost(): Promise<void> {
    try {
      for (let next = await messages.next(); !next.done; next = await messages.next()) {
        const { message } = next.value;
        if (message.case !== "lost") continue;
        told.push(...message.value.leases);
        while (told.length > 0 && waiting.length > 0) waiting.shift()!(told.shift()!);
      }
    } catch (error) {
      if (!left.signal.aborted) throw error;
    }
  }

  const worker: MeshWorker = {
    attached,
    session,
    async acquire(max, options = {}) {
      return (await leases.acquireTasks({ ...session, max, ...options })).tasks;
    },
    async acquireOne(options = {}) {
      const [task] = await worker.acquire(1, { waitMs: 10_000, ...options });
      if (task === undefined) throw new Error("no task came within 10 s");
      return task;
    },
    async complete({ taskId, fence }, output) {
      const task = output === undefined ? { taskId, fence } : { taskId, fence, ...outputOf(output) };
      return outcomeOf((await leases.completeTasks({ ...session, tasks: [task] })).results[0]);
    },
    async fail({ taskId, fence }, error = { type: "Broken", message: "broken", retryable: true }, rest = {}) {
      const { results } = await leases.failTasks({ ...session, tasks: [{ taskId, fence, error, ...rest }] });
      return outcomeOf(results[0]);
    },
    async release({ taskId, fence }) {
      return outcomeOf((await leases.releaseTasks({ ...session, tasks: [{ taskId, fence }] })).results[0]);
    },
    async renew(held, acquiring = false) {
      const named = held.map((lease) => ("$typeName" in lease ? keyOf(lease as LeaseKey) : lease));
      const { lost } = await leases.renewLeases({ ...session, leases: named, acquiring });
      return lost.map((lease) => lease.taskId);
    },
    async begin(...held) {
      const lost = await worker.renew(held.map(({ taskId, fence }) => ({ taskId, fence, started: true })));
      if (lost.length > 0) throw new Error(`lost before they began: ${lost}`);
    },
    async drain(output = () => undefined) {
      const keys: string[] = [];
      for (let tasks = await worker.acquire(100); tasks.length > 0; tasks = await worker.acquire(100)) {
        const completed = tasks.map((task) => ({ ...keyOf(task), ...outputOf(output(task) ?? "null") }));
        const { results } = await leases.completeTasks({ ...session, tasks: completed });
        for (const [i, task] of tasks.entries()) {
          const outcome = outcomeOf(results[i]);
          if (outcome !== "accepted") throw new Error(`the completion of ${task.key} was answered ${outcome}`);
          keys.push(task.key);
        }
      }
      return keys;
    },
    lost() {
      const lease = told.shift();
      if (lease !== undefined) return Promise.resolve(lease);
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error("no lost lease was told within 10 s")), 10_000);
        waiting.push((next) => {
          clearTimeout(timer);
          resolve(next);
        });
      });
    },
    close: () => left.abort(),
  };
  return worker;
}

/** A task as it was leased names its lease too. */
const keyOf = ({ taskId, fence }: LeaseKey) => ({ taskId, fence });

const outputOf = (output: string | Uint8Array) => ({
  outputPayload: { case: "outputJson" as const, value: typeof output === "string" ? Buffer.from(output) : output },
});
