import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { listEndableLeases, lockEpochLeases } from "@runmesh/store/session-end";
import { closeSession } from "@runmesh/store/sessions";
import { settleRun } from "@runmesh/store/settle-run";
import { hintSettled } from "./reports.ts";
import type { Session, Sessions } from "./sessions.ts";

/**
 * Ends the leases of a killed process early. Invariants:
 *   1. Only a stream that closed abnormally counts: not by this server, not merely silent.
 *   2. A worker that attaches again within the grace keeps everything: its epoch is another, and every statement here
 *      is conditional on the epoch of the stream that closed.
 *   3. When more than half of this instance's streams, and more than three, close within a second, it is the network:
 *      leases run out as usual.
 *   4. An `exclusive` task waits for its lease's expiry.
 *   5. The fence keeps results right all the same (G1): this decides only how soon a task runs again.
 */
export interface LinkWatchOptions {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly sessions: Sessions;
  readonly wakeups: Wakeups;
  readonly log: Log;
  /** Default 3 s. */
  readonly graceMs?: number;
}

const GRACE_MS = 3_000;
const STORM_MS = 1_000;
const STORM_MIN = 3;

export class LinkWatch {
  readonly #options: LinkWatchOptions;
  readonly #open = new Set<Session>();
  readonly #pending = new Set<NodeJS.Timeout>();
  /** When streams closed lately, oldest first. */
  #closed: number[] = [];

  constructor(options: LinkWatchOptions) {
    this.#options = options;
  }

  opened(session: Session): void {
    this.#open.add(session);
  }

  /** The stream ended. `abnormally` when neither side had said so. */
  closed(session: Session, abnormally: boolean): void {
    this.#open.delete(session);
    if (!abnormally) return;
    const closedAt = performance.now();
    this.#closed.push(closedAt);
    const openBefore = this.#open.size + this.#closed.filter((at) => at > closedAt - STORM_MS).length;
    const timer = setTimeout(() => {
      this.#pending.delete(timer);
      const together = this.#closed.filter((at) => Math.abs(at - closedAt) <= STORM_MS).length;
      this.#closed = this.#closed.filter((at) => at > performance.now() - 10 * GRACE_MS);
      if (together > STORM_MIN && together > openBefore / 2) {
        this.#options.log.warn({ together, openBefore }, "many workers' links broke at once: their leases run on");
        return;
      }
      void this.#endLeases(session);
    }, this.#options.graceMs ?? GRACE_MS);
    this.#pending.add(timer);
  }

  /** Forgets what is pending: the leases run out as usual. */
  stop(): void {
    for (const timer of this.#pending) clearTimeout(timer);
    this.#pending.clear();
  }

  async #endLeases(session: Session): Promise<void> {
    const { db, definitions, wakeups, log } = this.#options;
    const { tenantId, id: sessionId, epoch } = session;
    try {
      const leases = await listEndableLeases(db, { tenantId, sessionId, epoch });
      if (leases.length > 0) {
        const about = { sessionId: String(sessionId), leases: leases.length };
        log.info(about, "a worker's process is gone: ending its leases");
      }
      const runs = Map.groupBy(leases, (lease) => runIdOf(lease.task_id));
      for (const [runId, held] of runs) {
        const ended = held.map((lease) => ({ taskId: lease.task_id, fence: lease.fence, outcome: "LOST" as const }));
        const outcome = await settleRun(
          { db, definitions, random: Math.random },
          { tenantId, runId, ended, lockLeases: (tx) => lockEpochLeases(tx, { tenantId, sessionId, epoch, runId }) },
        );
        if (outcome.kind === "settled") hintSettled(wakeups, runId, outcome);
      }
      const closed = await closeSession(db, { tenantId, sessionId, epoch });
      if (closed !== undefined) this.#options.sessions.forget(sessionId);
    } catch (error) {
      // The reaper ends the leases at their expiry.
      log.warn({ error, sessionId: String(sessionId) }, "leases of a worker that is gone could not be ended early");
    }
  }
}
