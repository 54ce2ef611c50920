/**
 * The record of one attempt: what the handler called, and what it is answered. Invariants:
 *   1. A call is known by its place among the calls, its kind, name and occurrence. One that is recorded as another
 *      means that the handler does not do the same as before: the attempt fails NON_DETERMINISTIC.
 *   2. Answers are given in the order in which they were recorded, one a turn of the event loop, and those of this
 *      attempt after all that are recorded: so calls that run side by side are called in the same order on each pass.
 *   3. What was not recorded is not answered. Where that cannot be helped the attempt fails, whatever the handler makes
 *      of the error that it is given.
 *   4. It suspends only when nothing runs, all answers are given, and something is waited for. Then nothing is answered
 *      any more.
 *   5. With the handler it ends: what the handler left behind neither suspends its task nor is recorded.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { MeshError } from "@runmesh/client";
import { backoffMs, isTransient } from "@runmesh/client/internal";
import { type Step, StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { Answers } from "./answers.ts";
import { type Answer, type Call, describe, failedWith, isSame, type WaitCall } from "./calls.ts";
import { monotonicMs } from "./clock.ts";
import { CheckFailedError, readFailure } from "./failure.ts";
import { type Forgotten, GivenFailures } from "./given-failures.ts";
import { Recorder } from "./recorder.ts";
import { type WaitRest, Waits } from "./waits.ts";

/** The mesh, as a journal uses it. What is refused throws. */
export interface JournalStore {
  load(): Promise<readonly Step[]>;
  record(steps: readonly Step[]): Promise<void>;
  /** "suspended", or what waits were answered by: by nothing, it may be, where the attempt is to stay. */
  suspend(waits: readonly WaitCall[], stay: boolean): Promise<"suspended" | readonly Step[]>;
}

export interface JournalOptions {
  readonly store: JournalStore;
  /** Whether an earlier pass may have recorded something. */
  readonly isFirst: boolean;
  /** The task is suspended: nothing of this attempt counts any more. */
  readonly onSuspended: () => void;
}

/** A step whose function runs. */
interface Running {
  readonly journal: Journal;
  readonly name: string;
  isOver: boolean;
}

/** The server's limit. Places from it on are of calls that followed from a failure that is forgotten since. */
const MAX_STEPS = 10_000;

/** How long a start is repeated that the mesh has no room for. */
const REPEAT_MS = 120_000;

const running = new AsyncLocalStorage<Running>();

export class Journal {
  readonly #options: JournalOptions;
  readonly #record = new Map<number, Step>();
  /** Steps that have no place any more: whoever calls them next is answered by them. Other calls the mesh finds itself. */
  readonly #loose = new Map<string, Step>();
  readonly #occurrences = new Map<string, number>();
  readonly #answered = new Set<number>();
  readonly #failures = new GivenFailures();
  readonly #answers: Answers;
  readonly #recorder: Recorder;
  readonly #waits: Waits;
  #next = 0;
  #running = 0;
  #loading: Promise<void> | undefined;
  #ended: { readonly error: unknown } | "suspended" | undefined;
  #isClosed = false;
  /** Why the attempt fails whatever the handler makes of it. */
  fault: unknown;
  /** A call was given the error that ended it, and not an answer: what the handler makes of it is no result. */
  isCut = false;

  constructor(options: JournalOptions) {
    this.#options = options;
    this.#answers = new Answers(() => this.#waits.look());
    this.#recorder = new Recorder({
      record: (steps) => options.store.record(steps),
      onRecorded: (steps) => this.#answer(steps),
    });
    this.#waits = new Waits({
      suspend: (waits) => options.store.suspend(waits, false),
      poll: (waits) => this.#recorder.perform(() => this.#poll(waits)),
      isIdle: () =>
        this.#ended === undefined && this.#running === 0 && !this.#recorder.isBusy && this.#answers.areGiven,
      onSuspended: () => this.#suspended(),
      onAnswered: (steps) => this.#answer(steps),
      onRefused: (call, error) => {
        if (!(error instanceof CheckFailedError)) this.#cut(error);
        this.#refuse(call, error);
      },
      onElapsed: (call) => void this.run(call, async () => ({})),
    });
  }

  /**
   * Answers a call: from the record, or by `live`, which begins what will answer it. `renew` answers anew what is
   * recorded as to be renewed.
   */
  call(kind: StepKind, name: string, live: (call: Call) => void, renew?: (call: Call) => Promise<Step>): Promise<Step> {
    if (this.#ended === "suspended") return new Promise(() => {});
    if (this.#ended !== undefined) {
      this.isCut = true;
      return Promise.reject(this.#ended.error);
    }
    const refused = this.#findMisuse(kind, name);
    if (refused !== undefined) return Promise.reject(refused);
    const call = this.#place(kind, name);
    const answer = this.#answers.expect(call.position, renew && (() => this.#repeat(() => renew(call))));
    void this.#begin(call, live);
    return answer;
  }

  /** Runs what answers a call of this attempt, and records it. */
  async run(call: Call, work: () => Promise<Answer>): Promise<void> {
    const scope: Running = { journal: this, name: call.name, isOver: false };
    this.#running++;
    try {
      const answer = await running.run(scope, work);
      scope.isOver = true;
      // What fails after the end of the attempt fails because of it; what was done is recorded while the lease lives.
      if (this.#isClosed || (this.#ended !== undefined && answer.error !== undefined)) return;
      await this.#keep(call, answer);
    } catch (error) {
      if (!(error instanceof CheckFailedError)) this.#cut(error);
      this.#refuse(call, error);
    } finally {
      this.#running--;
      this.#waits.look();
    }
  }

  /** Runs what the mesh itself records, such as the start of a child. */
  async runRecorded(call: Call, work: () => Promise<Step>): Promise<void> {
    this.#running++;
    try {
      await this.#repeat(() => this.#recorder.perform(async () => [await work()]));
    } catch (error) {
      this.#refuse(call, error);
    } finally {
      this.#running--;
      this.#waits.look();
    }
  }

  /** The call waits for what only the mesh can answer. */
  wait(call: Call, rest: WaitRest): void {
    this.#waits.add(call, rest);
  }

  /** What was recorded of this step before the handler came to another place. */
  takeLoose({ name, occurrence }: Call): Answer | undefined {
    const key = `${name}/${occurrence}`;
    const step = this.#loose.get(key);
    this.#loose.delete(key);
    return step && { valueJson: step.valueJson };
  }

  /** Ends it: every call that waits fails with this. */
  abort(error: unknown): void {
    if (this.#ended !== undefined) return;
    this.#ended = { error };
    if (this.#answers.isAwaited) this.isCut = true;
    this.#waits.close();
    this.#recorder.abort(error);
    this.#answers.end(error);
  }

  /** The handler has ended. */
  close(): void {
    if (this.#ended !== undefined) return;
    const error = new Error("the handler has ended: what it did not await is cut off");
    this.#ended = { error };
    this.#isClosed = true;
    this.#waits.close();
    this.#recorder.abort(error);
    this.#answers.end(error);
  }

  /** Notes that an error was given to the handler as a recorded failure. */
  gave(error: object, position: number): void {
    this.#failures.note(error, { position, calls: this.#next });
  }

  /** The recorded failures that made the handler throw this: the next attempt is to try them anew. */
  failuresBehind(thrown: unknown): Forgotten | undefined {
    return this.#failures.behind(thrown, this.#next);
  }

  #findMisuse(kind: StepKind, name: string): CheckFailedError | undefined {
    const outer = running.getStore();
    if (outer?.journal === this && !outer.isOver) {
      return new CheckFailedError(
        "NESTED_CALL",
        `${describe({ kind, name, occurrence: 0 })} is called inside step ${JSON.stringify(outer.name)}, which is recorded as one: call it before or after the step`,
      );
    }
    if (this.#next < MAX_STEPS) return undefined;
    return new CheckFailedError(
      "TOO_LARGE",
      `a task records at most ${MAX_STEPS} calls: do more in each step, or give parts of the work to child runs`,
    );
  }

  #place(kind: StepKind, name: string): Call {
    const key = `${kind}/${name}`;
    const occurrence = this.#occurrences.get(key) ?? 0;
    this.#occurrences.set(key, occurrence + 1);
    return { position: this.#next++, kind, name, occurrence };
  }

  /** What has no room now may have it later: meanwhile other answers are recorded. */
  async #repeat<T>(work: () => Promise<T>): Promise<T> {
    const until = monotonicMs() + REPEAT_MS;
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        const isFinal = !(error instanceof MeshError) || !isTransient(error);
        const waitMs = isFinal ? 0 : backoffMs(attempt, error);
        if (isFinal || this.#ended !== undefined || monotonicMs() + waitMs > until) throw error;
        await delay(waitMs);
      }
    }
  }

  async #begin(call: Call, live: (call: Call) => void): Promise<void> {
    try {
      this.#loading ??= this.#load();
      await this.#loading;
      // The lease may be about to end: nothing is begun that would be cut off.
      await this.#waits.suspending;
      if (this.#ended !== undefined) return;
      const recorded = this.#record.get(call.position);
      if (recorded !== undefined && !isSame(recorded, call)) return this.#fail(call, recorded);
      if (recorded === undefined || recorded.done === 0) live(call);
      else this.#answers.give();
    } catch (error) {
      this.#cut(error);
    }
  }

  async #load(): Promise<void> {
    if (this.#options.isFirst) return;
    const steps = [...(await this.#options.store.load())].sort((a, b) => a.done - b.done);
    for (const step of steps) {
      if (step.position < MAX_STEPS) this.#record.set(step.position, step);
      else if (step.kind === StepKind.STEP) this.#loose.set(`${step.name}/${step.occurrence}`, step);
    }
    this.#answers.add(steps.filter((step) => step.done > 0 && step.position < MAX_STEPS));
  }

  #fail(call: Call, recorded: Step): void {
    this.#cut(
      new CheckFailedError(
        "NON_DETERMINISTIC",
        `call ${call.position} of the handler was ${describe(recorded)} before, and is ${describe(call)} now: between its recorded calls a handler must do the same on each pass`,
      ),
    );
  }

  /** Ends it for good: the handler cannot be given what it needs to go on. */
  #cut(error: unknown): void {
    if (this.#ended !== undefined) return;
    this.fault = error;
    this.abort(error);
  }

  #suspended(): void {
    this.#ended = "suspended";
    this.#waits.close();
    this.#answers.stop();
    this.#options.onSuspended();
  }

  async #keep(call: Call, answer: Answer): Promise<void> {
    const write = (given: Answer) => Object.assign(create(StepSchema, { ...call, done: 1 }), given);
    try {
      await this.#recorder.keep(write(answer));
    } catch (error) {
      if (!(error instanceof CheckFailedError) || answer.error !== undefined) throw error;
      // That it cannot be recorded is recorded: the next pass does not run it again.
      const { type } = readFailure(error);
      const why = error.cause instanceof MeshError ? error.cause.violations[0]?.description : undefined;
      const message = `what ${describe(call)} answered is not recorded: ${why ?? error.message}`;
      await this.#recorder.keep(write(failedWith({ type, message, retryable: false })));
    }
  }

  async #poll(waits: readonly WaitCall[]): Promise<readonly Step[]> {
    const steps = await this.#options.store.suspend(waits, true);
    return steps === "suspended" ? [] : [...steps].sort((a, b) => a.done - b.done);
  }

  #answer(steps: readonly Step[]): void {
    if (this.#ended !== undefined) return;
    for (const step of steps) {
      // A sleep may be over here and there at the same time.
      if (this.#answered.has(step.position)) continue;
      this.#answered.add(step.position);
      this.#waits.answered(step.position);
      this.#answers.add([step]);
    }
    this.#answers.give();
  }

  #refuse(call: Call, error: unknown): void {
    if (this.#ended !== "suspended") this.#answers.refuse(call.position, error);
  }
}
