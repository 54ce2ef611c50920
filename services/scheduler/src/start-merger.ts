import { randomUUID } from "node:crypto";
import type { StartRunRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { toRepeat } from "@runmesh/store/store-errors";
import { type StartDeps, type StartedRun, startRequestedRuns } from "./start-runs.ts";

/** Who starts, and what its runs carry on. */
export interface Starter {
  readonly tenantId: number;
  readonly principal: string;
  readonly traceparent: string | undefined;
}

interface Waiting {
  readonly request: StartRunRequest;
  readonly resolve: (started: StartedRun) => void;
  readonly reject: (error: unknown) => void;
}

interface Queue {
  readonly waiting: Waiting[];
  running: number;
  isScheduled: boolean;
}

const MAX_BATCH = 500;
/** Batches of one starter under way at once. */
const MAX_RUNNING = 2;

/** Merges single starts that arrive at once into one statement: a start alone costs ten times as much. */
export class StartMerger {
  readonly #deps: StartDeps;
  readonly #queues = new Map<string, Queue>();

  constructor(deps: StartDeps) {
    this.#deps = deps;
  }

  start(starter: Starter, request: StartRunRequest): Promise<StartedRun> {
    return new Promise((resolve, reject) => {
      const key = `${starter.tenantId}/${starter.principal}/${starter.traceparent ?? ""}`;
      let queue = this.#queues.get(key);
      if (queue === undefined) {
        queue = { waiting: [], running: 0, isScheduled: false };
        this.#queues.set(key, queue);
      }
      // Where a batch fails and each is tried by itself, what the batch had started is found again.
      if (request.idempotencyKey === "" && request.requestId === "") request.requestId = randomUUID();
      queue.waiting.push({ request, resolve, reject });
      if (queue.isScheduled || queue.running >= MAX_RUNNING) return;
      queue.isScheduled = true;
      // What arrives in this turn of the event loop goes along.
      setImmediate(() => {
        queue.isScheduled = false;
        this.#flush(key, queue, starter);
      });
    });
  }

  #flush(key: string, queue: Queue, starter: Starter): void {
    while (queue.waiting.length > 0 && queue.running < MAX_RUNNING) {
      const batch = queue.waiting.splice(0, MAX_BATCH);
      queue.running++;
      void this.#run(starter, batch).finally(() => {
        queue.running--;
        if (queue.waiting.length > 0) this.#flush(key, queue, starter);
        else if (queue.running === 0 && !queue.isScheduled) this.#queues.delete(key);
      });
    }
  }

  async #run(starter: Starter, batch: readonly Waiting[]): Promise<void> {
    const { tenantId, principal, traceparent } = starter;
    try {
      const requests = batch.map((item) => item.request);
      const started = await startRequestedRuns(this.#deps, tenantId, principal, requests, traceparent);
      for (const [i, item] of batch.entries()) {
        const outcome = started[i]!;
        if (outcome instanceof MeshError) item.reject(outcome);
        else item.resolve(outcome);
      }
    } catch (cause) {
      const error = toRepeat(cause);
      // A fault of one must not fail the others: each is tried by itself. An outage, or a lock that did not come in time,
      // is told to all.
      if (error instanceof MeshError || batch.length === 1) for (const item of batch) item.reject(error);
      else for (const item of batch) await this.#run(starter, [item]);
    }
  }
}
