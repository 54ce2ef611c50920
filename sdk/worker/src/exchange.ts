/**
 * 1. What has ended is reported at once when no report is out, and gathers into one call while one is; a large batch
 *    does not wait. A long poll that is parked holds up nothing; one that would follow an answer at once waits a moment,
 *    since what that answer brought may have ended by then, and its report goes first.
 * 2. Never more is asked for than slots and prefetch have room for, calls that are out included.
 * 3. A call whose answer was lost is repeated as it was: reports are idempotent by their fence, acquires by their
 *    request id. Reports end with their session, since no lease outlives it.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { backoffMs, readCallError, readErrorDetail } from "@runmesh/client/internal";
import type {
  CompletedTask,
  FailedTask,
  ItemResult,
  LeasedTask,
  ReleasedTask,
} from "@runmesh/contracts/lease/v1/lease_pb";
import {
  type ExchangeRequest,
  ExchangeRequestSchema,
  type ExchangeResponse,
  type LeaseService,
} from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { Attempt } from "./attempt.ts";
import { monotonicMs } from "./clock.ts";
import type { Outcome } from "./outcome.ts";
import { marginMs, type Session } from "./renewal-protocol.ts";
import { type Report, takeReports, writeReport } from "./report.ts";

export interface ExchangeOptions {
  readonly client: Client<typeof LeaseService>;
  session(): Session | undefined;
  /** How many more tasks there is room for. */
  room(): number;
  /** Takes the leases of an answer; they are trusted until then. */
  accept(session: Session, tasks: readonly LeasedTask[], trustedUntil: number): void;
  /** The reports of these were answered. */
  answered(attempts: readonly Attempt[]): void;
  closed(sessionId: bigint): void;
  onTrouble(message: string): void;
}

export interface Exchange {
  report(attempt: Attempt, outcome: Exclude<Outcome, { kind: "dropped" }>): void;
  /** Looks whether there is something to report or to ask for. */
  schedule(): void;
  /** The session is gone, and with it every lease: nothing of it is reported. */
  discard(): void;
  /** Asks for nothing more, and ends the long polls that are out. */
  stopAcquiring(): void;
  /** Resolves when every report was answered. */
  flushed(): Promise<void>;
  close(): void;
}

const MAX_ASK = 200;
const MAX_CALLS = 3;
const REPORT_FIRST_MS = 2;
/** From so many on, a report does not wait for the one before. */
const LARGE_BATCH = 50;
const MAX_WAIT_MS = 20_000;
/** An answer is given up for lost so long after the server's wait is over. */
const ANSWER_MS = 10_000;
/** Repeating the same request would not help. */
const FINAL: ReadonlySet<string> = new Set(["INVALID_FIELD", "INVALID_PAYLOAD", "TOO_LARGE", "NOT_SERVED"]);

export function createExchange(options: ExchangeOptions): Exchange {
  const closing = new AbortController();
  const polls = new AbortController();
  const calls = new Set<Promise<void>>();
  let pending: Report[] = [];
  let scheduled = false;
  let asked = 0;
  let reporting = 0;
  let parked = 0;
  let backlog = true;
  let pollTimer: NodeJS.Timeout | undefined;
  let acquiring = true;
  let failures = 0;

  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      flush();
    });
  }

  function flush(): void {
    const session = options.session();
    if (session === undefined || closing.signal.aborted) return;
    while (pending.length > 0 && (reporting === 0 || (reporting < MAX_CALLS && pending.length >= LARGE_BATCH))) {
      const reports = takeReports(pending);
      pending = pending.slice(reports.length);
      reporting++;
      track(call(session, reports, ask(), 0).finally(() => reporting--));
    }
    // One poll waits for work; more only while answers come full.
    while (acquiring && pollTimer === undefined && (parked === 0 || (backlog && parked < MAX_CALLS))) {
      const max = ask();
      if (max === 0) break;
      parked++;
      track(call(session, [], max, Math.min(MAX_WAIT_MS, Math.floor(session.leaseMs / 3))).finally(() => parked--));
    }
  }

  function ask(): number {
    return acquiring ? Math.max(0, Math.min(MAX_ASK, options.room() - asked)) : 0;
  }

  function track(running: Promise<void>): void {
    calls.add(running);
    void running.finally(() => {
      calls.delete(running);
      schedule();
    });
  }

  /** One exchange, repeated until it is answered, the session is gone, or the worker closes. */
  async function call(session: Session, reports: readonly Report[], max: number, waitMs: number): Promise<void> {
    const request = create(ExchangeRequestSchema, {
      sessionId: session.sessionId,
      sessionToken: session.sessionToken,
      ...sorted(reports),
      max,
      waitMs,
      requestId: randomUUID(),
    });
    const signal = waitMs > 0 ? AbortSignal.any([polls.signal, closing.signal]) : closing.signal;
    const sentAt = monotonicMs();
    asked += max;
    try {
      for (let attempt = 1; options.session() === session && !signal.aborted; attempt++) {
        try {
          const answer = await options.client.exchange(request, { signal, timeoutMs: waitMs + ANSWER_MS });
          failures = 0;
          asked -= max;
          max = 0;
          if (options.session() === session) take(session, { request, reports }, answer, sentAt);
          return;
        } catch (thrown) {
          if (signal.aborted) return;
          const error = readCallError(thrown);
          if (error.reason === "SESSION_CLOSED") return options.closed(session.sessionId);
          const text = `exchanging tasks: ${error.reason}: ${error.message}`;
          if (FINAL.has(error.reason)) {
            options.onTrouble(`${text}; ${reports.length} reports are dropped`);
            options.answered(reports.map((report) => report.attempt));
            await delay(backoffMs(10), undefined, { signal }).catch(() => undefined);
            return;
          }
          if (++failures === 3) options.onTrouble(text);
          await delay(backoffMs(attempt, error), undefined, { signal }).catch(() => undefined);
        }
      }
    } finally {
      asked -= max;
    }
  }

  function take(session: Session, sent: Sent, answer: ExchangeResponse, sentAt: number): void {
    readResults(sent.request.completed, answer.completed);
    readResults(sent.request.failed, answer.failed);
    // A release that is refused gives back what is not held any more, as where its task was suspended meanwhile.
    if (sent.reports.length > 0) options.answered(sent.reports.map((report) => report.attempt));
    if (sent.request.max > 0) backlog = answer.tasks.length === sent.request.max;
    if (answer.tasks.length === 0) return;
    if (!backlog) {
      pollTimer ??= setTimeout(() => {
        pollTimer = undefined;
        schedule();
      }, REPORT_FIRST_MS);
    }
    options.accept(session, answer.tasks, sentAt + session.leaseMs - marginMs(session.leaseMs));
  }

  function readResults(items: readonly Report["message"][], results: readonly ItemResult[]): void {
    for (let i = 0; i < items.length; i++) {
      const error = results[i]?.error;
      if (error === undefined) continue;
      const { taskId, fence } = items[i]!;
      const { reason } = readErrorDetail(error);
      options.onTrouble(`the report of task ${taskId}, fence ${fence}, is refused: ${reason}`);
    }
  }

  return {
    report(attempt, outcome) {
      pending.push(writeReport(attempt, outcome));
      schedule();
    },
    schedule,
    discard() {
      pending = [];
      backlog = true;
    },
    stopAcquiring() {
      acquiring = false;
      polls.abort();
    },
    async flushed() {
      while ((pending.length > 0 && options.session() !== undefined) || calls.size > 0) {
        flush();
        await Promise.race([...calls, delay(100)]);
      }
    },
    close: () => closing.abort(),
  };
}

interface Sent {
  readonly request: ExchangeRequest;
  readonly reports: readonly Report[];
}

function sorted(reports: readonly Report[]) {
  const completed: CompletedTask[] = [];
  const failed: FailedTask[] = [];
  const released: ReleasedTask[] = [];
  for (const { message } of reports) {
    if (message.$typeName === "runmesh.lease.v1.CompletedTask") completed.push(message);
    else if (message.$typeName === "runmesh.lease.v1.FailedTask") failed.push(message);
    else released.push(message);
  }
  return { completed, failed, released };
}
