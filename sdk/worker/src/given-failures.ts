/** What the next attempt is to do anew. */
export interface Forgotten {
  /** Positions of failures that ended the handler. */
  readonly steps: readonly number[];
  /** Calls from this position on followed from them. 0 for none. */
  readonly from: number;
}

/** A recorded failure that was given to the handler, when it had made so many calls. */
interface Given {
  readonly position: number;
  readonly calls: number;
}

/** The recorded failures that a handler was given, by the errors that it may throw on. */
export class GivenFailures {
  readonly #byError = new WeakMap<object, Given>();
  #last: Given | undefined;

  note(error: object, given: Given): void {
    this.#byError.set(error, given);
    this.#last = given;
  }

  /** Those that made a handler throw this, itself, as a cause or among others, when it had made so many calls. */
  behind(thrown: unknown, calls: number): Forgotten | undefined {
    const found = new Map<number, number>();
    const seen = new Set<unknown>();
    const look = (error: unknown): void => {
      if (typeof error !== "object" || error === null || seen.has(error)) return;
      seen.add(error);
      const given = this.#byError.get(error);
      if (given !== undefined) found.set(given.position, given.calls);
      if (error instanceof AggregateError) for (const inner of error.errors) look(inner);
      look((error as { cause?: unknown }).cause);
    };
    look(thrown);
    // Thrown anew without its cause, and with nothing done about it in between.
    const last = this.#last;
    if (found.size === 0 && last !== undefined && last.calls === calls) found.set(last.position, last.calls);
    if (found.size === 0) return undefined;
    const from = Math.min(...found.values());
    return { steps: [...found.keys()], from: from < calls ? from : 0 };
  }
}
