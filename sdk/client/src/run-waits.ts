import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import type { Run as RunMessage } from "@runmesh/contracts/run/v1/run_pb";
import type { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "./errors.ts";

interface Waiter {
  readonly resolve: (run: RunMessage) => void;
  readonly reject: (error: unknown) => void;
}

const MAX_IDS = 1_000;
/** Calls out at once; more waits join the next of them that comes back. */
const MAX_CALLS = 4;
const WAIT_MS = 20_000;
/** An answer is given up for lost so long after the server's wait is over. */
const ANSWER_MS = 10_000;
const PAUSE_MS = 500;
const REPEATED: ReadonlySet<string> = new Set(["UNAVAILABLE", "OVERLOADED", "CANCELLED"]);

/**
 * Waits for ends of runs, all of a connection in a few calls that wait at the server: one for each run would cost more
 * than the run. While the mesh is out of reach the wait goes on.
 */
export class RunWaits {
  readonly #runs: Client<typeof RunService>;
  readonly #waiters = new Map<bigint, Set<Waiter>>();
  /** Ids that no call carries yet. */
  readonly #fresh = new Set<bigint>();
  #calls = 0;
  #isScheduled = false;

  constructor(runs: Client<typeof RunService>) {
    this.#runs = runs;
  }

  /** The run once it has ended. Rejects with NOT_FOUND where there is no such run. */
  wait(runId: bigint, signal?: AbortSignal): Promise<RunMessage> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const abort = () => {
        this.#drop(runId, waiter);
        reject(signal?.reason);
      };
      const settle =
        <T>(end: (value: T) => void) =>
        (value: T) => {
          signal?.removeEventListener("abort", abort);
          end(value);
        };
      const waiter = { resolve: settle(resolve), reject: settle(reject) };
      signal?.addEventListener("abort", abort, { once: true });
      const waiters = this.#waiters.get(runId);
      if (waiters !== undefined) waiters.add(waiter);
      else {
        this.#waiters.set(runId, new Set([waiter]));
        this.#fresh.add(runId);
        this.#schedule();
      }
    });
  }

  #drop(runId: bigint, waiter: Waiter): void {
    const waiters = this.#waiters.get(runId);
    waiters?.delete(waiter);
    if (waiters?.size === 0) this.#waiters.delete(runId);
  }

  /** What is asked in one turn of the event loop goes together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#fresh.size > 0 && this.#calls < MAX_CALLS) void this.#follow(this.#take([]));
    });
  }

  /** Ids that are still waited for, filled up with fresh ones. */
  #take(rest: readonly bigint[]): bigint[] {
    const ids = rest.filter((id) => this.#waiters.has(id));
    for (const id of this.#fresh) {
      if (ids.length === MAX_IDS) break;
      this.#fresh.delete(id);
      if (this.#waiters.has(id)) ids.push(id);
    }
    return ids;
  }

  async #follow(first: bigint[]): Promise<void> {
    this.#calls++;
    let failures = 0;
    for (let ids = first; ids.length > 0; ids = this.#take(ids)) {
      const askedAt = performance.now();
      try {
        const { runs, missingRunIds } = await this.#runs.awaitRuns(
          { runIds: ids, waitMs: WAIT_MS },
          { timeoutMs: WAIT_MS + ANSWER_MS },
        );
        failures = 0;
        for (const run of runs) this.#settle(run.id, (waiter) => waiter.resolve(run));
        for (const id of missingRunIds) this.#settle(id, (waiter) => waiter.reject(missing(id)));
        const isEmpty = runs.length + missingRunIds.length === 0;
        if (isEmpty && performance.now() - askedAt < PAUSE_MS) await delay(PAUSE_MS);
      } catch (error) {
        if (error instanceof MeshError && REPEATED.has(error.reason)) await delay(PAUSE_MS * Math.min(++failures, 10));
        else for (const id of ids) this.#settle(id, (waiter) => waiter.reject(error));
      }
    }
    this.#calls--;
    this.#schedule();
  }

  #settle(runId: bigint, end: (waiter: Waiter) => void): void {
    const waiters = this.#waiters.get(runId) ?? [];
    this.#waiters.delete(runId);
    for (const waiter of waiters) end(waiter);
  }
}

const missing = (runId: bigint) =>
  new MeshError("NOT_FOUND", `no run ${runId}`, { advice: "Check the id, and the tenant of your credential." });
