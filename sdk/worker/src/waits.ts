import { setTimeout as delay } from "node:timers/promises";
import { type Step, StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Call, WaitCall } from "./calls.ts";
import { monotonicMs } from "./clock.ts";

/** What a handler waits for, beside its call. */
export interface WaitRest {
  /** Of a sleep, its length; of the others, their time-out. */
  readonly durationMs?: number;
  /** Of a result: where the child was started. */
  readonly childPosition?: number;
}

export interface WaitsOptions {
  /** "suspended", or what waits were answered by. */
  suspend(waits: readonly WaitCall[]): Promise<"suspended" | readonly Step[]>;
  /** Answers what is over without suspending. */
  poll(waits: readonly WaitCall[]): Promise<void>;
  /** Whether nothing but these waits can go on. */
  isIdle(): boolean;
  onSuspended(): void;
  onAnswered(steps: readonly Step[]): void;
  onRefused(call: Call, error: unknown): void;
  /** A sleep is over before the task could be suspended for it. */
  onElapsed(call: Call): void;
}

interface Entry {
  readonly call: Call;
  readonly rest: WaitRest;
  readonly since: number;
  readonly timer: NodeJS.Timeout | undefined;
}

/** The server's limit of one call. What has a time of its own is named first; the rest are named as others end. */
const MAX_WAITS = 1_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
const MIN_REST_MS = 50;
const MAX_REST_MS = 200;
/** How often it asks what is over while a step runs, at first and at last. */
const MIN_POLL_MS = 1_000;
const MAX_POLL_MS = 5_000;

/** What a handler waits for that only the mesh can answer: the task is suspended for it when nothing else goes on. */
export class Waits {
  readonly #options: WaitsOptions;
  readonly #entries = new Map<number, Entry>();
  #isLooking = false;
  #isClosed = false;
  /** What it asked to be suspended for last, and how long it rests before it asks for the rest of it again. */
  #asked = new Set<number>();
  #restMs = 0;
  #pollMs = MIN_POLL_MS;
  #pollTimer: NodeJS.Timeout | undefined;
  /** A request to be suspended is out. */
  suspending: Promise<void> | undefined;

  constructor(options: WaitsOptions) {
    this.#options = options;
  }

  add(call: Call, rest: WaitRest): void {
    const { durationMs } = rest;
    const isSleep = call.kind === StepKind.SLEEP && durationMs !== undefined && durationMs <= MAX_TIMER_MS;
    const timer = isSleep ? setTimeout(() => void this.#elapse(call), durationMs) : undefined;
    this.#entries.set(call.position, { call, rest, since: monotonicMs(), timer });
    this.#pollMs = MIN_POLL_MS;
    this.look();
  }

  answered(position: number): void {
    clearTimeout(this.#entries.get(position)?.timer);
    this.#entries.delete(position);
  }

  /** Nothing is waited for any more. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#pollTimer);
    for (const { timer } of this.#entries.values()) clearTimeout(timer);
    this.#entries.clear();
  }

  /** Suspends when there is nothing else to do, and asks now and then what is over while there is. */
  look(): void {
    if (this.#isLooking || this.#entries.size === 0) return;
    this.#isLooking = true;
    setImmediate(() => {
      this.#isLooking = false;
      if (this.#entries.size === 0 || this.suspending !== undefined) return;
      if (!this.#options.isIdle()) {
        this.#pollTimer ??= setTimeout(() => void this.#poll(), this.#pollMs);
        return;
      }
      this.suspending = this.#suspend().finally(() => {
        this.suspending = undefined;
        this.look();
      });
    });
  }

  /**
   * Where something was answered and the rest is waited for anew, more is probably under way: asking at once, again and
   * again, would hold up those that it waits for.
   */
  async #rest(): Promise<void> {
    const isNew = [...this.#entries.keys()].some((position) => !this.#asked.has(position));
    this.#restMs = isNew ? 0 : Math.min(MAX_REST_MS, Math.max(MIN_REST_MS, this.#restMs * 2));
    this.#asked = new Set(this.#entries.keys());
    if (this.#restMs > 0) await delay(this.#restMs);
  }

  async #suspend(): Promise<void> {
    await this.#rest();
    const entries = this.#choose();
    if (entries.length === 0) return;
    try {
      const outcome = await this.#options.suspend(entries.map(writeWait));
      if (this.#isClosed) return;
      if (outcome === "suspended") this.#options.onSuspended();
      else this.#options.onAnswered([...outcome].sort((a, b) => a.done - b.done));
    } catch (error) {
      for (const { call } of entries) {
        this.answered(call.position);
        this.#options.onRefused(call, error);
      }
    }
  }

  async #poll(): Promise<void> {
    this.#pollTimer = undefined;
    this.#pollMs = Math.min(MAX_POLL_MS, this.#pollMs * 2);
    const entries = this.#choose();
    if (entries.length > 0 && this.suspending === undefined && !this.#options.isIdle()) {
      // What is wrong shows when it is asked for in earnest.
      await this.#options.poll(entries.map(writeWait)).catch(() => undefined);
    }
    this.look();
  }

  #choose(): Entry[] {
    return [...this.#entries.values()].sort(byUrgency).slice(0, MAX_WAITS);
  }

  async #elapse(call: Call): Promise<void> {
    await this.suspending;
    if (this.#entries.has(call.position)) this.#options.onElapsed(call);
  }
}

const isTimed = ({ rest, call }: Entry): boolean => rest.durationMs !== undefined || call.kind === StepKind.SIGNAL;

const byUrgency = (a: Entry, b: Entry): number =>
  Number(isTimed(b)) - Number(isTimed(a)) || a.call.position - b.call.position;

/** Times count from the call, and a step beside it may have held up the suspension: by whole seconds, where it did. */
function writeWait({ call, rest, since }: Entry): WaitCall {
  const { durationMs, childPosition } = rest;
  const elapsedMs = Math.floor((monotonicMs() - since) / 1_000) * 1_000;
  return {
    ...call,
    ...(durationMs !== undefined && { duration: toDuration(Math.max(0, durationMs - elapsedMs)) }),
    ...(childPosition !== undefined && { childPosition }),
  };
}

function toDuration(ms: number) {
  const seconds = Math.floor(ms / 1_000);
  return {
    $typeName: "google.protobuf.Duration" as const,
    seconds: BigInt(seconds),
    nanos: Math.round((ms - seconds * 1_000) * 1e6),
  };
}
