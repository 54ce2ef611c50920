import type { Client } from "@connectrpc/connect";
import { readErrorDetail } from "@runmesh/client/internal";
import type { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { Attempt } from "./attempt.ts";
import type { Session } from "./renewal-protocol.ts";

interface Waiting {
  readonly attempt: Attempt;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

const MAX_ITEMS = 1_000;

/**
 * Tells the mesh that handlers are about to run, and resolves when it knows: for tasks that must never run twice by
 * themselves, since a loss after it is final. Those that begin in one turn go in one call.
 */
export function createStartTeller(options: {
  readonly client: Client<typeof LeaseService>;
  session(): Session | undefined;
}): (attempt: Attempt) => Promise<void> {
  let waiting: Waiting[] = [];

  async function tell(batch: readonly Waiting[]): Promise<void> {
    const { sessionId = 0n, sessionToken = "" } = options.session() ?? {};
    const tasks = batch.map(({ attempt: { lease } }) => ({ taskId: lease.taskId, fence: lease.fence }));
    try {
      const { results } = await options.client.startTasks({ sessionId, sessionToken, tasks });
      for (const [i, { attempt, resolve, reject }] of batch.entries()) {
        const error = results[i]?.error;
        if (error === undefined) {
          attempt.startTold = true;
          resolve();
        } else {
          attempt.lost = true;
          reject(readErrorDetail(error));
        }
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }

  return (attempt) =>
    new Promise((resolve, reject) => {
      // What is aborted meanwhile waits for no answer.
      attempt.signal.addEventListener("abort", () => reject(attempt.signal.reason), { once: true });
      waiting.push({ attempt, resolve, reject });
      if (waiting.length > 1) return;
      setImmediate(() => {
        const all = waiting;
        waiting = [];
        for (let at = 0; at < all.length; at += MAX_ITEMS) void tell(all.slice(at, at + MAX_ITEMS));
      });
    });
}
