import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { workThrough } from "@runmesh/platform/work-through";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { listEndableLeases, lockEpochLeases } from "@runmesh/store/session-end";
import { closeSession } from "@runmesh/store/sessions";
import { settleRun } from "@runmesh/store/settle-run";
import { type BrokenLink, LinkStorms, type Storm } from "./link-storm.ts";
import { hintSettled } from "./reports.ts";
import type { Session, Sessions } from "./sessions.ts";

/**
 * Ends the leases of a killed process early. Invariants:
 *   1. Only a stream that closed abnormally counts: not by this server, not of a worker that said it leaves, not merely
 *      silent.
 *   2. A worker that attaches again within the grace keeps everything: its epoch is another, and every statement here
 *      is conditional on the epoch of the stream that closed.
 *   3. When more than half of this instance's sessions, and more than three, break within a second, it is the network:
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
/** Runs settled at once. */
const MAX_SETTLING = 4;

/** How a stream ended: by this server's hand, by a worker that had said so, or without a word. */
export type StreamEnd = "here" | "left" | "broken";

export class LinkWatch {
  readonly #options: LinkWatchOptions;
  readonly #graceMs: number;
  /** Streams by the id of their session, and since when: one that came back has two for a while. */
  readonly #open = new Map<bigint, Map<Session, number>>();
  readonly #pending = new Set<NodeJS.Timeout>();
  readonly #storms = new LinkStorms();
  readonly #told = new WeakSet<Storm>();

  constructor(options: LinkWatchOptions) {
    this.#options = options;
    this.#graceMs = options.graceMs ?? GRACE_MS;
  }

  opened(session: Session): void {
    const streams = this.#open.get(session.id) ?? new Map<Session, number>();
    this.#open.set(session.id, streams.set(session, performance.now()));
  }

  closed(session: Session, end: StreamEnd): void {
    const before = this.#open.size;
    const at = performance.now();
    const streams = this.#open.get(session.id);
    const openedAt = streams?.get(session) ?? at;
    streams?.delete(session);
    if (streams?.size === 0) this.#open.delete(session.id);
    if (end === "here") return;
    const link = end === "broken" ? { sessionId: session.id, openedAt, at, before } : undefined;
    if (link !== undefined) this.#storms.add(link);
    const timer = setTimeout(() => {
      this.#pending.delete(timer);
      if (link === undefined || !this.#isStorm(link)) void this.#endLeases(session);
    }, this.#graceMs);
    this.#pending.add(timer);
  }

  /** Forgets what is pending: the leases run out as usual. */
  stop(): void {
    for (const timer of this.#pending) clearTimeout(timer);
    this.#pending.clear();
  }

  #isStorm(link: BrokenLink): boolean {
    const storm = this.#storms.find(link);
    if (storm === undefined) return false;
    if (!this.#told.has(storm))
      this.#options.log.warn({ ...storm }, "many workers' links broke at once: their leases run on");
    this.#told.add(storm);
    return true;
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
      await workThrough(runs, MAX_SETTLING, async ([runId, held]) => {
        const ended = held.map((lease) => ({ taskId: lease.task_id, fence: lease.fence, outcome: "LOST" as const }));
        const outcome = await settleRun(
          { db, definitions, random: Math.random },
          { tenantId, runId, ended, lockLeases: (tx) => lockEpochLeases(tx, { tenantId, sessionId, epoch, runId }) },
        );
        if (outcome.kind === "settled") hintSettled(wakeups, runId, outcome);
      });
      const closed = await closeSession(db, { tenantId, sessionId, epoch });
      if (closed !== undefined) this.#options.sessions.forget(sessionId);
    } catch (error) {
      // The reaper ends the leases at their expiry.
      log.warn({ error, sessionId: String(sessionId) }, "leases of a worker that is gone could not be ended early");
    }
  }
}
