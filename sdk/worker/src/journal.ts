/**
 * The record of one attempt: what the handler called, and what it is answered. Invariants:
 *   1. A call is known by its place among the calls, its kind, name and occurrence. One that is recorded as another
 *      means that the handler does not do the same as before: the attempt fails NON_DETERMINISTIC.
 *   2. Answers are given in the order in which they were recorded, one a turn of the event loop, and those of this
 *      attempt after all that are recorded: so calls that run side by side are called in the same order on each pass.
 *   3. What was not recorded is not answered, but an error that is to be tried again.
 *   4. It suspends only when nothing runs, all answers are given, and something is waited for. Then nothing is answered
 *      any more.
 */
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type Step, type StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Wait } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { CheckFailedError } from "./failure.ts";

/** One call of the handler, by which it is known on each pass. */
export interface Call {
  readonly position: number;
  readonly kind: StepKind;
  readonly name: string;
  /** From 0: the calls of this kind and name in their order. */
  readonly occurrence: number;
}

/** What a handler waits for, beside its call. */
export type WaitRest = Partial<Pick<Wait, "duration" | "childPosition">>;

/** What a call of this attempt is answered, and is recorded with. */
export type Answer = Partial<Pick<Step, "valueJson" | "error">>;

/** The mesh, as a journal uses it. What is refused throws. */
export interface JournalStore {
  load(): Promise<readonly Step[]>;
  record(steps: readonly Step[]): Promise<void>;
  /** "suspended", or what waits were answered by. */
  suspend(waits: readonly (Call & WaitRest)[]): Promise<"suspended" | readonly Step[]>;
}

export interface JournalOptions {
  readonly store: JournalStore;
  /** Whether an earlier pass may have recorded something. */
  readonly isFirst: boolean;
  /** The task is suspended: nothing of this attempt counts any more. */
  readonly onSuspended: () => void;
}

interface Waiting {
  readonly resolve: (step: Step) => void;
  readonly reject: (error: unknown) => void;
  readonly renew: (() => Promise<Step>) | undefined;
}

/** The server's limits of one record call, the bytes with room to spare. */
const MAX_RECORDED = 100;
const MAX_BYTES = 3 * 1024 * 1024;
/** How long answers wait for a call that is recorded before them, where the handler does something else in between. */
const STALL_MS = 5_000;
const MIN_REST_MS = 50;
const MAX_REST_MS = 200;

const never = new Promise<never>(() => {});
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

export class Journal {
  readonly #options: JournalOptions;
  readonly #record = new Map<number, Step>();
  readonly #occurrences = new Map<string, number>();
  /** Calls that wait for their answer. */
  readonly #waiting = new Map<number, Waiting>();
  /** What the task is to be suspended for. */
  readonly #waits = new Map<number, Call & WaitRest>();
  readonly #failures = new WeakMap<object, number>();
  /** Answers in their order, from `#given` on those that were not given. */
  readonly #answers: Step[] = [];
  #given = 0;
  #unsent: { step: Step; resolve: () => void; reject: (error: unknown) => void }[] = [];
  #sending = false;
  #next = 0;
  #running = 0;
  #giving = false;
  #looking = false;
  #stall: NodeJS.Timeout | undefined;
  #hasStalled = false;
  #loading: Promise<void> | undefined;
  #suspending: Promise<void> | undefined;
  /** What it asked to be suspended for last, and how long it rests before it asks for the rest of it again. */
  #asked = new Set<number>();
  #restMs = 0;
  #lastFailure: { position: number; calls: number } | undefined;
  #ended: { readonly error: unknown } | "suspended" | undefined;
  /** Why the attempt fails whatever the handler makes of it. */
  fault: CheckFailedError | undefined;

  constructor(options: JournalOptions) {
    this.#options = options;
  }

  /**
   * Answers a call: from the record, or by `live`, which begins what will answer it. `renew` answers anew what is
   * recorded as to be renewed.
   */
  call(kind: StepKind, name: string, live: (call: Call) => void, renew?: (call: Call) => Promise<Step>): Promise<Step> {
    if (this.#ended === "suspended") return never;
    if (this.#ended !== undefined) return rejected(this.#ended.error);
    const call = this.#place(kind, name);
    const answer = new Promise<Step>((resolve, reject) => {
      this.#waiting.set(call.position, { resolve, reject, renew: renew && (() => renew(call)) });
    });
    // The handler may leave a call behind: its failure is then nobody's.
    answer.catch(() => undefined);
    void this.#begin(call, live);
    return answer;
  }

  /** Runs what answers a call of this attempt, and records it. A failure that is not to be recorded is given as it is. */
  async run(call: Call, work: () => Promise<Answer>): Promise<void> {
    this.#running++;
    try {
      const answer = await work();
      await this.#keep(Object.assign(create(StepSchema, { ...call, done: 1 }), answer));
    } catch (error) {
      this.#refuse(call, error);
    } finally {
      this.#running--;
      this.#look();
    }
  }

  /** Runs what the mesh itself records, such as the start of a child. */
  async runRecorded(call: Call, work: () => Promise<Step>): Promise<void> {
    this.#running++;
    try {
      this.#answer([await work()]);
    } catch (error) {
      this.#refuse(call, error);
    } finally {
      this.#running--;
      this.#look();
    }
  }

  /** The call waits for what only the mesh can answer. */
  wait(call: Call, rest: WaitRest): void {
    this.#waits.set(call.position, { ...call, ...rest });
    this.#look();
  }

  /** Ends it: every call that waits fails with this. */
  abort(error: unknown): void {
    if (this.#ended !== undefined) return;
    this.#ended = { error };
    clearTimeout(this.#stall);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    for (const { reject } of this.#unsent.splice(0)) reject(error);
  }

  /** Notes that an error was given to the handler as a recorded failure. */
  gave(error: object, position: number): void {
    this.#failures.set(error, position);
    this.#lastFailure = { position, calls: this.#next };
  }

  /** Positions of the recorded failures that made the handler throw this: the next attempt is to try them anew. */
  failuresBehind(thrown: unknown): number[] {
    const found = new Set<number>();
    const seen = new Set<unknown>();
    const look = (error: unknown): void => {
      if (typeof error !== "object" || error === null || seen.has(error)) return;
      seen.add(error);
      const position = this.#failures.get(error);
      if (position !== undefined) found.add(position);
      if (error instanceof AggregateError) for (const inner of error.errors) look(inner);
      look((error as { cause?: unknown }).cause);
    };
    look(thrown);
    // Thrown anew without its cause, and with nothing done about it in between.
    const last = this.#lastFailure;
    if (found.size === 0 && last !== undefined && last.calls === this.#next) found.add(last.position);
    return [...found];
  }

  #place(kind: StepKind, name: string): Call {
    const key = `${kind}/${name}`;
    const occurrence = this.#occurrences.get(key) ?? 0;
    this.#occurrences.set(key, occurrence + 1);
    return { position: this.#next++, kind, name, occurrence };
  }

  async #begin(call: Call, live: (call: Call) => void): Promise<void> {
    try {
      this.#loading ??= this.#load();
      await this.#loading;
      // The lease may be about to end: nothing is begun that would be cut off.
      await this.#suspending;
      if (this.#ended !== undefined) return;
      const recorded = this.#record.get(call.position);
      if (recorded !== undefined && !isSame(recorded, call)) throw this.#fail(call, recorded);
      if (recorded === undefined || recorded.done === 0) live(call);
      else void this.#give();
    } catch (error) {
      this.#refuse(call, error);
    }
  }

  async #load(): Promise<void> {
    if (this.#options.isFirst) return;
    const steps = await this.#options.store.load();
    for (const step of steps) this.#record.set(step.position, step);
    this.#answers.push(...steps.filter((step) => step.done > 0).sort((a, b) => a.done - b.done));
  }

  #fail(call: Call, recorded: Step): CheckFailedError {
    const fault = new CheckFailedError(
      "NON_DETERMINISTIC",
      `call ${call.position} of the handler was ${describe(recorded)} before, and is ${describe(call)} now: between its recorded calls a handler must do the same on each pass`,
    );
    this.fault ??= fault;
    this.abort(fault);
    return fault;
  }

  #refuse(call: Call, error: unknown): void {
    if (this.#ended === "suspended") return;
    this.#waiting.get(call.position)?.reject(error);
    this.#waiting.delete(call.position);
  }

  /** Sends what is to be recorded in the order it ended: what ends while a call is out goes together in the next. */
  #keep(step: Step): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#unsent.push({ step, resolve, reject });
      if (!this.#sending) void this.#send();
    });
  }

  async #send(): Promise<void> {
    this.#sending = true;
    // What ends in this turn goes along.
    await turn();
    while (this.#unsent.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#options.store.record(batch.map(({ step }) => step));
        this.#answer(batch.map(({ step }) => step));
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#sending = false;
  }

  #takeBatch() {
    let bytes = 0;
    let count = 0;
    while (count < this.#unsent.length && count < MAX_RECORDED) {
      bytes += this.#unsent[count]!.step.valueJson.length + 256;
      if (count > 0 && bytes > MAX_BYTES) break;
      count++;
    }
    return this.#unsent.splice(0, count);
  }

  #answer(steps: readonly Step[]): void {
    for (const step of steps) this.#waits.delete(step.position);
    this.#answers.push(...steps);
    void this.#give();
  }

  /** Gives answers in their order, each a turn of the event loop for what follows it. */
  async #give(): Promise<void> {
    if (this.#giving) return;
    this.#giving = true;
    while (this.#given < this.#answers.length && this.#ended === undefined) {
      const at = this.#findNext();
      if (at === undefined) break;
      const [step] = this.#answers.splice(at, 1) as [Step];
      this.#answers.splice(this.#given++, 0, step);
      const waiting = this.#waiting.get(step.position)!;
      this.#waiting.delete(step.position);
      try {
        waiting.resolve(step.renew && waiting.renew ? await waiting.renew() : step);
      } catch (error) {
        waiting.reject(error);
      }
      await turn();
    }
    this.#giving = false;
    this.#look();
  }

  /** The place of the next answer that can be given; none while a call is to come that is recorded before it. */
  #findNext(): number | undefined {
    const isAwaited = (step: Step) => this.#waiting.has(step.position);
    if (isAwaited(this.#answers[this.#given]!)) {
      clearTimeout(this.#stall);
      this.#stall = undefined;
      this.#hasStalled = false;
      return this.#given;
    }
    if (this.#hasStalled) {
      const at = this.#answers.findIndex((step, i) => i > this.#given && isAwaited(step));
      if (at > 0) return at;
    }
    if (!this.#hasStalled) {
      this.#stall ??= setTimeout(() => {
        this.#hasStalled = true;
        this.#stall = undefined;
        void this.#give();
      }, STALL_MS);
    }
    return undefined;
  }

  /** Suspends when there is nothing else to do. */
  #look(): void {
    if (this.#looking || this.#ended !== undefined || this.#waits.size === 0) return;
    this.#looking = true;
    setImmediate(() => {
      this.#looking = false;
      const isBusy = this.#running > 0 || this.#giving || this.#suspending !== undefined || this.#sending;
      const hasAnswers = this.#given < this.#answers.length && !this.#hasStalled;
      if (isBusy || hasAnswers || this.#waits.size === 0 || this.#ended !== undefined) return;
      this.#suspending = this.#suspend().finally(() => {
        this.#suspending = undefined;
        this.#look();
      });
    });
  }

  /**
   * Where something was answered and the rest is waited for anew, more is probably under way: asking at once, again and
   * again, would hold up those that it waits for.
   */
  async #rest(): Promise<void> {
    const isNew = [...this.#waits.keys()].some((position) => !this.#asked.has(position));
    this.#restMs = isNew ? 0 : Math.min(MAX_REST_MS, Math.max(MIN_REST_MS, this.#restMs * 2));
    this.#asked = new Set(this.#waits.keys());
    if (this.#restMs > 0) await delay(this.#restMs);
  }

  async #suspend(): Promise<void> {
    await this.#rest();
    const waits = [...this.#waits.values()];
    if (this.#ended !== undefined) return;
    try {
      const outcome = await this.#options.store.suspend(waits);
      if (this.#ended !== undefined) return;
      if (outcome !== "suspended") return this.#answer([...outcome].sort((a, b) => a.done - b.done));
      this.#ended = "suspended";
      clearTimeout(this.#stall);
      this.#options.onSuspended();
    } catch (error) {
      for (const wait of waits) {
        this.#waits.delete(wait.position);
        this.#refuse(wait, error);
      }
    }
  }
}

const isSame = (step: Step, call: Call): boolean =>
  step.kind === call.kind && step.name === call.name && step.occurrence === call.occurrence;

const KINDS = ["a call", "step", "sleep", "signal", "start of", "result of"];

const describe = ({ kind, name, occurrence }: Call): string =>
  `${KINDS[kind] ?? "a call"} ${JSON.stringify(name)}${occurrence > 0 ? ` (call ${occurrence + 1} of it)` : ""}`;

function rejected(error: unknown): Promise<never> {
  const promise = Promise.reject(error);
  promise.catch(() => undefined);
  return promise;
}
