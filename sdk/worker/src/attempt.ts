import { type DurableContext, MeshError, type TaskContext, type TaskLog } from "@runmesh/client";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { LogLine_Level } from "@runmesh/contracts/task/v1/task_pb";
import { monotonicMs } from "./clock.ts";
import { createDurable, type Durable } from "./durable.ts";
import type { CreateHost } from "./durable-calls.ts";
import { clip } from "./failure.ts";
import type { Forgotten } from "./given-failures.ts";
import type { Line } from "./renewal-protocol.ts";
import { type AbortCause, TaskAbortedError } from "./task-aborted.ts";

const MAX_PROGRESS = 64 * 1024;
const MAX_LINE = 8 * 1024;
/** The server keeps 1 MiB of an attempt and marks the cut: a little more is enough to make it do so. */
const MAX_LOG = 1024 * 1024 + MAX_LINE;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * One lease of a task in this worker, and the context of its handler. What a handler may not ask for (signal, log) is
 * made when it is asked for: most tasks pay for none of it.
 */
export class Attempt implements TaskContext {
  readonly lease: LeasedTask;
  /** The answer it came with, and until when it may be relied on without a renewal. */
  readonly batch: number;
  readonly ownTrustedUntil: number;
  readonly receivedAt: number;
  state: "queued" | "running" | "reporting" | "suspended" = "queued";
  /** Set when it was aborted: what the handler still answers is judged by it. */
  aborted: AbortCause | undefined;
  /** The server said that the lease no longer counts. */
  lost = false;
  startedAt = 0;
  startTold = false;
  deadlineAt = Number.POSITIVE_INFINITY;
  /** The last progress, and whether the renewal thread knows it. */
  progressJson: Uint8Array<ArrayBuffer> | undefined;
  progressTold = true;
  progressAt = 0;
  /** Lines that no renewal carries yet; the renewal thread knows the first `linesTold`. */
  lines: Line[] = [];
  linesTold = 0;
  #logBytes = 0;
  #log: TaskLog | undefined;
  #controller: AbortController | undefined;
  readonly #createHost: CreateHost;
  #durable: Durable | undefined;
  #isClosed = false;

  constructor(lease: LeasedTask, batch: number, ownTrustedUntil: number, receivedAt: number, createHost: CreateHost) {
    this.lease = lease;
    this.#createHost = createHost;
    this.batch = batch;
    this.ownTrustedUntil = ownTrustedUntil;
    this.receivedAt = receivedAt;
  }

  begin(now: number): void {
    const { startToClose } = this.lease;
    this.state = "running";
    this.startedAt = now;
    this.progressAt = now;
    if (startToClose !== undefined) this.deadlineAt = now + durationMs(startToClose);
  }

  /** When it times out unless something is told before. */
  get timesOutAt(): number {
    const { heartbeat } = this.lease;
    return heartbeat === undefined
      ? this.deadlineAt
      : Math.min(this.deadlineAt, this.progressAt + durationMs(heartbeat));
  }

  abort(cause: AbortCause): void {
    if (this.aborted !== undefined) return;
    this.aborted = cause;
    const error = new TaskAbortedError(cause);
    this.#controller?.abort(error);
    // Of a suspended handler nothing is answered any more.
    if (cause !== "suspended") this.#durable?.journal.abort(error);
  }

  get #calls(): Durable {
    if (this.#durable === undefined) {
      this.#durable = createDurable(this.#createHost(this));
      if (this.aborted !== undefined) this.#durable.journal.abort(new TaskAbortedError(this.aborted));
      if (this.#isClosed) this.#durable.journal.close();
    }
    return this.#durable;
  }

  get step(): DurableContext["step"] {
    return this.#calls.step;
  }

  get sleep(): DurableContext["sleep"] {
    return this.#calls.sleep;
  }

  get waitForSignal(): DurableContext["waitForSignal"] {
    return this.#calls.waitForSignal;
  }

  get startRun(): DurableContext["startRun"] {
    return this.#calls.startRun;
  }

  /** Why the attempt fails whatever its handler answers. */
  get fault(): unknown {
    return this.#durable?.journal.fault;
  }

  /** A durable call of the handler was aborted: what it answers was not made of what it asked for. */
  get isCut(): boolean {
    return this.#durable?.journal.isCut ?? false;
  }

  /** What the handler did not await is cut off. */
  close(): void {
    this.#isClosed = true;
    this.#durable?.journal.close();
  }

  /** The recorded failures that are behind what the handler threw. */
  forget(thrown: unknown): { forget?: Forgotten } {
    const forget = this.#durable?.journal.failuresBehind(thrown);
    return forget === undefined ? {} : { forget };
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.aborted !== undefined) this.#controller.abort(new TaskAbortedError(this.aborted));
    }
    return this.#controller.signal;
  }

  get fence(): bigint {
    return this.lease.fence;
  }

  get attempt(): number {
    return this.lease.attempt;
  }

  get runId(): string {
    return String(this.lease.runId);
  }

  get taskId(): string {
    return String(this.lease.taskId);
  }

  get key(): string {
    return this.lease.key;
  }

  get workflow(): string {
    return this.lease.workflow;
  }

  get traceparent(): string | undefined {
    return this.lease.traceparent || undefined;
  }

  get lastProgress(): unknown {
    const { progressJson } = this.lease;
    return progressJson.length === 0 ? undefined : JSON.parse(decoder.decode(progressJson));
  }

  /** A function of its own, so that a handler may take it out of the context. */
  get progress(): (value: unknown) => void {
    return (value) => this.#setProgress(value);
  }

  get log(): TaskLog {
    this.#log ??= {
      debug: (message) => this.#write(LogLine_Level.DEBUG, message),
      info: (message) => this.#write(LogLine_Level.INFO, message),
      warn: (message) => this.#write(LogLine_Level.WARN, message),
      error: (message) => this.#write(LogLine_Level.ERROR, message),
    };
    return this.#log;
  }

  #setProgress(value: unknown): void {
    const json = encoder.encode(JSON.stringify(value) ?? "null");
    if (json.length > MAX_PROGRESS) {
      throw new MeshError("TOO_LARGE", `progress is ${json.length} bytes of JSON; at most ${MAX_PROGRESS} are kept`);
    }
    this.progressJson = json;
    this.progressTold = false;
    this.progressAt = monotonicMs();
  }

  #write(level: LogLine_Level, message: string): void {
    const clipped = clip(String(message), MAX_LINE);
    if (this.#logBytes > MAX_LOG) return;
    this.#logBytes += clipped.length;
    this.lines.push({ atMs: Date.now(), attempt: this.lease.attempt, level, message: clipped });
  }
}

export function byFence(attempts: Iterable<Attempt>): Map<bigint, Attempt> {
  const index = new Map<bigint, Attempt>();
  for (const attempt of attempts) index.set(attempt.lease.fence, attempt);
  return index;
}

function durationMs(duration: { readonly seconds: bigint; readonly nanos: number }): number {
  return Number(duration.seconds) * 1_000 + duration.nanos / 1e6;
}
