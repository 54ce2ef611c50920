import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { OutputOf } from "./define-task.ts";
import type { Workflow } from "./define-workflow.ts";

/**
 * What is left of a value that was stored as JSON: what has `toJSON` is what that answers. Of an error its message is not
 * left, of a map or set nothing; a bigint or a symbol cannot be stored.
 */
export type Stored<T> = unknown extends T
  ? T
  : // biome-ignore lint/suspicious/noConfusingVoidType: what answers nothing is stored as nothing.
    T extends string | number | boolean | null | undefined | void
    ? T
    : T extends { toJSON(): infer J }
      ? Stored<J>
      : T extends bigint | symbol | ((...args: never[]) => unknown)
        ? never
        : T extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
          ? object
          : T extends Error
            ? Stored<Omit<T, keyof Error>>
            : { [K in keyof T]: Stored<T[K]> };

/** A run that a handler started. */
export interface ChildRun<O> {
  readonly id: string;
  /**
   * Waits for the end, holding no worker meanwhile. Rejects with `RunFailedError` when it was not a success; the next
   * attempt of the handler then finds another run in its place. With a `timeout` it rejects with `ResultTimeoutError`
   * when the end had not come by then; the run goes on, and may be waited for again.
   */
  result(options?: ResultOptions): Promise<O>;
}

export interface ResultOptions {
  /** As in "1h", at most 366d, from the first time that this call waits. Default none. */
  readonly timeout?: string;
}

export interface ChildOptions {
  /** At most 16 pairs. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The run is PENDING until then. */
  readonly dueTime?: Date;
  /** It goes on when the task that started it ends without success, or its run is cancelled. Default false. */
  readonly detached?: boolean;
}

/**
 * What a handler does once, however often it is run. When the process dies, or the handler waits for long, it runs from
 * its top again later, and calls that were answered before are answered from the record, in the order in which they were.
 * So between these calls a handler does the same each time, and what acts on the world stands in a step.
 */
export interface DurableContext {
  /**
   * Runs `fn` and records what it answers, any JSON of at most 256 KiB: it never runs again in this task. One that is
   * cut off before its record does, so `fn` gets a key, the same each time, for others to know it by. An error that it
   * throws is recorded by its name and message, and thrown so on each pass, until it ends the handler: the next attempt
   * runs `fn` again. `name` has 1 to 128 bytes, and may be used more than once. No call of the context may stand in `fn`.
   */
  step<T>(name: string, fn: (idempotencyKey: string) => Promise<T> | T): Promise<Stored<T>>;
  /** Waits so long, as in "1h30m", at most 366d. Over 10 s no worker is held. */
  sleep(duration: string): Promise<void>;
  /**
   * Waits for the next signal of this name, holding no worker meanwhile; one that came before is taken at once, first
   * in, first out. With a `timeout`, as in "1d", it answers undefined when none came, and null when one came that carries
   * nothing. A payload that `schema` refuses throws, and fails the task where that is not caught.
   */
  waitForSignal<S extends StandardSchemaV1>(
    name: string,
    options: { readonly schema: S; readonly timeout: string },
  ): Promise<OutputOf<S> | undefined>;
  waitForSignal<S extends StandardSchemaV1>(name: string, options: { readonly schema: S }): Promise<OutputOf<S>>;
  waitForSignal<T = unknown>(name: string, options: { readonly timeout: string }): Promise<T | undefined>;
  waitForSignal<T = unknown>(name: string): Promise<T>;
  /**
   * Starts a run, once. It is cancelled when the task ends without success, or its run is cancelled or times out, unless
   * it is detached.
   */
  startRun<I, O>(workflow: Workflow<I, O>, input: I, options?: ChildOptions): Promise<ChildRun<O>>;
  /** Starts a registered workflow whose definition is not at hand. */
  startRun(
    workflow: string,
    input?: unknown,
    options?: ChildOptions & { readonly version?: number },
  ): Promise<ChildRun<unknown>>;
}
