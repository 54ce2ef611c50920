import type { Step } from "@runmesh/contracts/lease/v1/lease_pb";
import { CheckFailedError } from "./failure.ts";

export interface RecorderOptions {
  record(steps: readonly Step[]): Promise<void>;
  /** Told what was recorded, in the order in which it was. */
  onRecorded(steps: readonly Step[]): void;
}

interface Job {
  /** What a step answered. What ends while a call is out goes together in the next. */
  readonly step?: Step;
  /** What the mesh records by itself. */
  readonly work?: () => Promise<readonly Step[]>;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The server's limits of one record call, the bytes with room to spare. */
const MAX_RECORDED = 100;
const MAX_BYTES = 3 * 1024 * 1024;

/**
 * Writes the record of one attempt, one call at a time: answers of two calls that are out at once could arrive in
 * another order than they were recorded in, and the next pass would be given them the other way round. The mesh writes
 * a task's record under one lock, so nothing would be faster.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  #jobs: Job[] = [];
  #isBusy = false;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  get isBusy(): boolean {
    return this.#isBusy;
  }

  keep(step: Step): Promise<void> {
    return this.#add({ step });
  }

  /** Does what the mesh records by itself, such as the start of a child. */
  perform(work: () => Promise<readonly Step[]>): Promise<void> {
    return this.#add({ work });
  }

  /** What is not recorded yet will not be. */
  abort(error: unknown): void {
    for (const { reject } of this.#jobs.splice(0)) reject(error);
  }

  #add(job: Pick<Job, "step" | "work">): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#jobs.push({ ...job, resolve, reject });
      if (!this.#isBusy) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isBusy = true;
    // What ends in this turn goes along.
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#jobs.length > 0) await this.#do(this.#take());
    this.#isBusy = false;
  }

  async #do(jobs: readonly Job[]): Promise<void> {
    try {
      const { work } = jobs[0]!;
      const steps = work ? await work() : jobs.map((job) => job.step!);
      if (!work) await this.#options.record(steps);
      this.#options.onRecorded(steps);
      for (const { resolve } of jobs) resolve();
    } catch (error) {
      // One that cannot be recorded takes no other along.
      if (jobs.length > 1 && error instanceof CheckFailedError) for (const job of jobs) await this.#do([job]);
      else for (const { reject } of jobs) reject(error);
    }
  }

  #take(): Job[] {
    let bytes = 0;
    let count = 0;
    for (; count < this.#jobs.length && count < MAX_RECORDED; count++) {
      const { step } = this.#jobs[count]!;
      if (step === undefined) break;
      bytes += step.valueJson.length + 256;
      if (count > 0 && bytes > MAX_BYTES) break;
    }
    return this.#jobs.splice(0, Math.max(1, count));
  }
}
