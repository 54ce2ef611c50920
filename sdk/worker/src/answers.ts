import type { Step } from "@runmesh/contracts/lease/v1/lease_pb";

interface Awaited {
  readonly resolve: (step: Step) => void;
  readonly reject: (error: unknown) => void;
  readonly renew: (() => Promise<Step>) | undefined;
}

/** How long answers wait for a call that is recorded before them, where the handler does something else in between. */
const STALL_MS = 5_000;

/** Gives calls their answers in the order in which these were recorded. */
export class Answers {
  readonly #onGiven: () => void;
  readonly #awaited = new Map<number, Awaited>();
  /** In their order, from `#given` on those that were not given. */
  readonly #answers: Step[] = [];
  #given = 0;
  #isGiving = false;
  #hasEnded = false;
  #stall: NodeJS.Timeout | undefined;
  #hasStalled = false;

  /** `onGiven` is told when there is nothing to give for now. */
  constructor(onGiven: () => void) {
    this.#onGiven = onGiven;
  }

  get isAwaited(): boolean {
    return this.#awaited.size > 0;
  }

  get areGiven(): boolean {
    return !this.#isGiving && (this.#given === this.#answers.length || this.#hasStalled);
  }

  expect(position: number, renew: (() => Promise<Step>) | undefined): Promise<Step> {
    const answer = new Promise<Step>((resolve, reject) => this.#awaited.set(position, { resolve, reject, renew }));
    // The handler may leave a call behind: its failure is then nobody's.
    answer.catch(() => undefined);
    return answer;
  }

  add(steps: readonly Step[]): void {
    this.#answers.push(...steps);
  }

  refuse(position: number, error: unknown): void {
    this.#awaited.get(position)?.reject(error);
    this.#awaited.delete(position);
  }

  give(): void {
    if (!this.#isGiving) void this.#giveAll();
  }

  /** Nothing is answered any more. */
  stop(): void {
    this.#hasEnded = true;
    clearTimeout(this.#stall);
    this.#awaited.clear();
  }

  /** What is awaited fails with this. */
  end(error: unknown): void {
    const awaited = [...this.#awaited.values()];
    this.stop();
    for (const { reject } of awaited) reject(error);
  }

  /** Each has a turn of the event loop for what follows it. */
  async #giveAll(): Promise<void> {
    this.#isGiving = true;
    while (this.#given < this.#answers.length && !this.#hasEnded) {
      const at = this.#findNext();
      if (at === undefined) break;
      const [step] = this.#answers.splice(at, 1) as [Step];
      this.#answers.splice(this.#given++, 0, step);
      const awaited = this.#awaited.get(step.position)!;
      this.#awaited.delete(step.position);
      try {
        awaited.resolve(step.renew && awaited.renew ? await awaited.renew() : step);
      } catch (error) {
        awaited.reject(error);
      }
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    this.#isGiving = false;
    this.#onGiven();
  }

  /** The place of the next answer that can be given; none while a call is to come that is recorded before it. */
  #findNext(): number | undefined {
    const isAwaited = (step: Step) => this.#awaited.has(step.position);
    if (isAwaited(this.#answers[this.#given]!)) {
      clearTimeout(this.#stall);
      this.#stall = undefined;
      this.#hasStalled = false;
      return this.#given;
    }
    if (this.#hasStalled) {
      const at = this.#answers.findIndex((step, i) => i > this.#given && isAwaited(step));
      return at > 0 ? at : undefined;
    }
    this.#stall ??= setTimeout(() => {
      this.#hasStalled = true;
      this.#stall = undefined;
      this.give();
    }, STALL_MS);
    return undefined;
  }
}
