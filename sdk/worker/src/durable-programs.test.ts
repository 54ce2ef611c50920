/**
 * Random handlers over random crashes, suspensions and answers that take their time: whatever happens, each pass goes the
 * way of the one before, and no step runs again that is recorded.
 */
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type Step, StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { expect, test } from "vitest";
import { createProgram, createRandom, type Program, type Random, runProgram } from "../test/random-program.ts";
import { findLoose, forget } from "../test/recorded-task.ts";
import type { Call } from "./calls.ts";
import { createDurable } from "./durable.ts";

const PROGRAMS = 120;
const AT_ONCE = 20;
const MAX_PASSES = 200;

/** A task's record, and what became of its passes. */
class Task {
  readonly repeated: string[] = [];
  readonly #random: Random;
  readonly #program: Program;
  #record: Step[] = [];
  #passes = 0;

  constructor(seed: number) {
    this.#random = createRandom(seed);
    this.#program = createProgram(this.#random);
  }

  /** Passes until the handler ends. Answers how it did. */
  async run(): Promise<string> {
    while (this.#passes < MAX_PASSES) {
      const end = await this.#pass();
      if (end !== "suspended" && end !== "crashed" && end !== "retried") return end;
    }
    return "did not end";
  }

  async #pass(): Promise<string> {
    const pass = ++this.#passes;
    const suspended = Promise.withResolvers<string>();
    let isLost = false;
    let lock: Promise<unknown> = Promise.resolve();
    /** One after the other, as under the lease's lock; the answers come when they come. */
    const call = async <T>(change: () => T): Promise<T> => {
      const changed = lock.then(async () => {
        await this.#lag(3);
        if (isLost) throw new Error("the lease is lost");
        return change();
      });
      lock = changed.catch(() => undefined);
      await changed;
      await this.#lag(3);
      return changed;
    };
    const durable = createDurable({
      isFirst: pass === 1,
      inProcessMs: 10,
      scope: "1/k",
      onSuspended: () => suspended.resolve("suspended"),
      startChild: (started) => call(() => this.#answer(started, { childRunId: BigInt(100 + started.position) })),
      store: {
        load: () => call(() => this.#record.map((step) => create(StepSchema, { ...step }))),
        record: (steps) => call(() => steps.forEach((step) => void this.#answer(step, step))),
        suspend: (waits, stay) =>
          call(() => {
            const answers = waits.flatMap((wait) => this.#tryWait(wait));
            if (answers.length > 0 || stay) return answers;
            isLost = true;
            return "suspended" as const;
          }),
      },
    });
    const work = async (name: string) => {
      await this.#lag(4);
      const isRecorded = this.#record.some((step) => step.name === name && step.done > 0);
      if (isRecorded && pass === this.#passes && !isLost) this.repeated.push(name);
      if (name.startsWith("fragile") && this.#random() < 0.5) throw new Error(`${name} broke`);
    };
    const ended = runProgram(durable, this.#program, work)
      .then(
        () => "done",
        (error) => {
          const forgotten = durable.journal.failuresBehind(error);
          if (forgotten === undefined) return `failed: ${error}`;
          if (!isLost) this.#record = forget(this.#record, forgotten);
          return "retried";
        },
      )
      .finally(() => durable.journal.close());
    const end = await Promise.race([ended, suspended.promise, this.#crash()]);
    isLost = true;
    if (end === "crashed") durable.journal.abort(new Error("crashed"));
    if (end === "suspended") this.#wake();
    return durable.journal.fault === undefined ? end : `fault: ${durable.journal.fault}`;
  }

  #crash(): Promise<string> {
    if (this.#random() < 0.6) return new Promise(() => {});
    return delay(this.#random() * 25, "crashed");
  }

  #lag(mostMs: number): Promise<void> {
    return delay(this.#random() * mostMs);
  }

  /** Records an answer, or what the call finds of its own. */
  #answer(call: Call, given: Partial<Step>): Step {
    const recorded = this.#record.find((step) => step.position === call.position);
    if (recorded !== undefined && recorded.done > 0) return recorded;
    const done = 1 + Math.max(0, ...this.#record.map((step) => step.done));
    const { position, kind, name, occurrence } = call;
    const loose = findLoose(this.#record, call);
    this.#record = this.#record.filter((step) => step !== recorded && step !== loose);
    const { valueJson, error, childRunId } = loose ?? given;
    const step = Object.assign(create(StepSchema, { position, kind, name, occurrence, done }), {
      ...(valueJson && { valueJson }),
      ...(error && { error }),
      ...(childRunId && { childRunId }),
    });
    this.#record.push(step);
    return step;
  }

  #tryWait(wait: Call): Step[] {
    const { position, kind, name, occurrence } = wait;
    const recorded = this.#record.find((step) => step.position === position);
    if (recorded !== undefined && recorded.done > 0) return [recorded];
    if (findLoose(this.#record, wait) || this.#random() < 0.15) return [this.#endWait(wait)];
    if (recorded === undefined) this.#record.push(create(StepSchema, { position, kind, name, occurrence }));
    return [];
  }

  #endWait(wait: Call): Step {
    const valueJson = Buffer.from(wait.kind === StepKind.SLEEP ? "" : JSON.stringify(wait.name));
    return this.#answer(wait, { valueJson });
  }

  /** Some of what it waits for has come. */
  #wake(): void {
    const open = this.#record.filter((step) => step.done === 0);
    const count = 1 + Math.floor(this.#random() * open.length);
    for (const step of open.slice(0, count)) this.#endWait(step);
  }
}

test(`${PROGRAMS} random handlers end, whatever cuts them off, and repeat nothing that is recorded`, async () => {
  const ends: string[] = [];
  for (let first = 1; first <= PROGRAMS; first += AT_ONCE) {
    const tasks = Array.from({ length: AT_ONCE }, (_, i) => new Task((first + i) * 7_919));
    const ended = await Promise.all(tasks.map((task) => task.run()));
    for (const [i, end] of ended.entries()) {
      if (end !== "done") ends.push(`${first + i}: ${end}`);
      for (const name of tasks[i]!.repeated) ends.push(`${first + i}: ${name} ran again`);
    }
  }

  expect(ends).toEqual([]);
}, 60_000);
