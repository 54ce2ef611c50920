/**
 * Runs in the renewal thread.
 *
 * 1. Every lease held is named in every renewal until its report was answered: one left out would be released.
 * 2. What a successful renewal named is trusted until (when it was sent + ttl − margin) (G4).
 * 3. A lost lease is told, and counted in shared memory, before the renewal that lost it extends the trust of others.
 */
import type { Client } from "@connectrpc/connect";
import { readCallError } from "@runmesh/client/internal";
import type { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { monotonicMs } from "./clock.ts";
import {
  type FromThread,
  type Line,
  marginMs,
  type Session,
  SHARED,
  type ToThread,
  writeLine,
} from "./renewal-protocol.ts";

interface Held {
  readonly taskId: bigint;
  readonly fence: bigint;
  started: boolean;
  progress: Uint8Array<ArrayBuffer> | undefined;
  log: Line[];
}

/** Bytes of log lines in one renewal. */
const MAX_LOG_BYTES = 60 * 1024;
/** Renewals that are asked for at once still keep this apart. */
const MIN_GAP_MS = 50;
const RETRY_MS = 500;
const MAX_EARLY = 1_000;

export interface LeaseKeeper {
  begin(session: Session): void;
  hold(message: Extract<ToThread, { kind: "hold" }>): void;
  drop(fences: BigInt64Array): void;
  tell(message: Extract<ToThread, { kind: "tell" }>): void;
  /** Leases that the server says no longer count. */
  lose(leases: readonly { readonly fence: bigint; readonly cause: number }[]): void;
  /** Renews once more, as the last word of a worker that stops. */
  settle(): void;
  /** Forgets every lease. */
  end(): void;
}

export function createLeaseKeeper(
  client: Client<typeof LeaseService>,
  shared: BigInt64Array,
  post: (message: FromThread) => void,
  onClosed: (sessionId: bigint) => void,
): LeaseKeeper {
  const held = new Map<bigint, Held>();
  // A lease may be told lost before the answer that brings it has arrived here.
  const lostEarly = new Map<bigint, number>();
  let session: Session | undefined;
  let batch = 0;
  let acquiring = true;
  let settling = false;
  let sentAt = Number.NEGATIVE_INFINITY;
  let dueAt = Number.POSITIVE_INFINITY;
  let timer: NodeJS.Timeout | undefined;
  let calling = false;
  let troubled = false;

  function renewWithin(ms: number): void {
    const at = Math.max(monotonicMs() + ms, sentAt + MIN_GAP_MS);
    if (at >= dueAt) return;
    dueAt = at;
    clearTimeout(timer);
    timer = setTimeout(renew, Math.max(0, at - monotonicMs()));
  }

  async function renew(): Promise<void> {
    dueAt = Number.POSITIVE_INFINITY;
    const current = session;
    if (current === undefined || calling || (held.size === 0 && !settling)) return;
    calling = true;
    sentAt = monotonicMs();
    const named = batch;
    const wasSettling = settling;
    const logged: [Held, Line[]][] = takeLog(held.values());
    const told = [...held.values()].map((lease) => ({ lease, progress: takeProgress(lease) }));
    if (logged.length > 0)
      post({ kind: "logged", lines: logged.map(([l, lines]) => [l.fence, lines.length] as const) });
    let nextMs = current.renewMs;
    try {
      const lines = new Map(logged);
      const answer = await client.renewLeases(
        {
          sessionId: current.sessionId,
          sessionToken: current.sessionToken,
          acquiring,
          leaving: wasSettling,
          leases: told.map(({ lease, progress }) => ({
            taskId: lease.taskId,
            fence: lease.fence,
            started: lease.started,
            ...(progress && { progressJson: progress }),
            ...(lines.has(lease) && { log: lines.get(lease)!.map(writeLine) }),
          })),
        },
        { timeoutMs: Math.max(1_000, current.leaseMs / 3) },
      );
      troubled = false;
      if (session === current) {
        lose(answer.lost);
        Atomics.store(
          shared,
          SHARED.TRUSTED_UNTIL,
          BigInt(Math.floor(sentAt + current.leaseMs - marginMs(current.leaseMs))),
        );
        Atomics.store(shared, SHARED.COVERED_BATCH, BigInt(named));
        post({ kind: "renewed" });
      }
      if (wasSettling) {
        settling = false;
        post({ kind: "settled" });
      }
    } catch (thrown) {
      for (const { lease, progress } of told) lease.progress ??= progress;
      for (const [lease, lines] of logged) lease.log.unshift(...lines);
      if (logged.length > 0) post({ kind: "unlogged", lines: logged.map(([l, lines]) => [l.fence, lines] as const) });
      const error = readCallError(thrown);
      if (error.reason === "SESSION_CLOSED") onClosed(current.sessionId);
      else if (!troubled) post({ kind: "trouble", message: `renewing leases: ${error.reason}: ${error.message}` });
      troubled = true;
      nextMs = Math.min(RETRY_MS, current.renewMs / 2) * (0.5 + Math.random());
    } finally {
      calling = false;
    }
    if (held.size > 0 || settling) renewWithin(settling ? 0 : nextMs);
  }

  function lose(leases: readonly { readonly fence: bigint; readonly cause: number }[]): void {
    const lost: [bigint, number][] = [];
    for (const { fence, cause } of leases) {
      if (held.delete(fence)) lost.push([fence, cause]);
      else remember(fence, cause);
    }
    tellLost(lost);
  }

  function remember(fence: bigint, cause: number): void {
    lostEarly.set(fence, cause);
    if (lostEarly.size > MAX_EARLY) lostEarly.delete(lostEarly.keys().next().value!);
  }

  function tellLost(leases: readonly (readonly [fence: bigint, cause: number])[]): void {
    if (leases.length === 0) return;
    post({ kind: "lost", leases });
    Atomics.add(shared, SHARED.LOST_COUNT, 1n);
  }

  return {
    begin(next) {
      session = next;
      renewWithin(held.size > 0 ? 0 : next.renewMs);
    },
    hold(message) {
      if (session === undefined || message.sessionId !== session.sessionId) return;
      for (let i = 0; i < message.leases.length; i += 2) {
        const fence = message.leases[i + 1]!;
        const cause = lostEarly.get(fence);
        if (cause !== undefined) tellLost([[fence, cause]]);
        else held.set(fence, { taskId: message.leases[i]!, fence, started: false, progress: undefined, log: [] });
      }
      batch = message.batch;
      const remaining = message.trustedUntil - monotonicMs();
      renewWithin(remaining < session.renewMs + marginMs(session.leaseMs) ? 0 : session.renewMs);
    },
    drop(fences) {
      for (const fence of fences) held.delete(fence);
    },
    tell({ started, progress, log, withinMs }) {
      for (const fence of started) {
        const lease = held.get(fence);
        if (lease !== undefined) lease.started = true;
      }
      for (const [fence, json] of progress) {
        const lease = held.get(fence);
        if (lease !== undefined) lease.progress = json;
      }
      for (const [fence, lines] of log) held.get(fence)?.log.push(...lines);
      renewWithin(withinMs);
    },
    lose,
    settle() {
      acquiring = false;
      settling = true;
      renewWithin(0);
    },
    end() {
      held.clear();
      lostEarly.clear();
      session = undefined;
      clearTimeout(timer);
      dueAt = Number.POSITIVE_INFINITY;
      if (settling) post({ kind: "settled" });
      settling = false;
    },
  };
}

function takeProgress(lease: Held): Uint8Array<ArrayBuffer> | undefined {
  const { progress } = lease;
  lease.progress = undefined;
  return progress;
}

/** As many lines as one renewal may carry. */
function takeLog(leases: Iterable<Held>): [Held, Line[]][] {
  const taken: [Held, Line[]][] = [];
  let bytes = 0;
  for (const lease of leases) {
    let count = 0;
    while (count < lease.log.length && bytes < MAX_LOG_BYTES) {
      const size = lease.log[count]!.message.length * 3 + 32;
      if (bytes + size > MAX_LOG_BYTES) break;
      bytes += size;
      count++;
    }
    if (count > 0) taken.push([lease, lease.log.splice(0, count)]);
  }
  return taken;
}
