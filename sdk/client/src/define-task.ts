import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { TaskContext } from "./task-context.ts";

export type InputOf<S> = S extends StandardSchemaV1 ? StandardSchemaV1.InferInput<S> : never;
export type OutputOf<S> = S extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<S> : never;

/** How a failed or timed-out attempt is tried again: after min(max, initial × multiplier^(n-1)), spread by ± jitter. */
export interface RetryOptions {
  /** Failures and time-outs before the task is DEAD, 1 to 10,000; 0 means no limit. Default 3. */
  readonly maxAttempts?: number;
  /** Leases lost after the start before the task is DEAD. Default 20, or 0 where maxAttempts is 1. */
  readonly maxLost?: number;
  /** A duration such as "1h30m" (ms, s, m, h, d). Default "1s". */
  readonly initialInterval?: string;
  /** 1 to 100. Default 2. */
  readonly multiplier?: number;
  /** Default "1m". */
  readonly maxInterval?: string;
  /** 0 to 1. Default 0.2. */
  readonly jitter?: number;
  /** Error types that are not tried again: the `name` of what the handler throws. At most 50. */
  readonly nonRetryable?: readonly string[];
}

/** What a task has by default, and one place in a graph may set anew. Durations are such as "30s"; "0" means none. */
export interface TaskSettings {
  readonly retry?: RetryOptions;
  /** From the start of the handler to its end; then the attempt has timed out and is retried. */
  readonly timeout?: string;
  /** From the start, or the last progress, to the next progress; then as for `timeout`. */
  readonly heartbeatTimeout?: string;
  /** From ready until a worker starts the handler; then the task is DEAD, not retried. */
  readonly startTimeout?: string;
  /** -100 to 100, higher first. Default 0. */
  readonly priority?: number;
  /** Default "default". */
  readonly queue?: string;
  /** Capabilities that a worker must announce, as "gpu" or "region=eu". */
  readonly requires?: readonly string[];
  /** Never leased again before the old lease's expiry or the worker's word that its handler ended. */
  readonly exclusive?: boolean;
}

export interface TaskOptions<I extends StandardSchemaV1, O extends StandardSchemaV1> extends TaskSettings {
  /** Name of the handler that workers announce: 1 to 128 bytes of [A-Za-z0-9._/-]. */
  readonly name: string;
  readonly input: I;
  readonly output: O;
}

/** A task and the function that does it, as `createWorker` takes it. */
export interface Handler {
  readonly task: string;
  readonly definition: AnyTask;
  run(input: unknown, context: TaskContext): unknown;
}

/** W is wired in, H reaches the handler, R is returned by it, S is stored and referenced. */
export interface Task<W, H, R, S> extends AnyTask {
  readonly "~wire"?: W;
  readonly "~stored"?: S;
  handle(run: (input: H, context: TaskContext) => Promise<R> | R): Handler;
}

/** What is common to tasks of any type. */
export interface AnyTask {
  readonly name: string;
  readonly input: StandardSchemaV1;
  readonly output: StandardSchemaV1;
  readonly settings: TaskSettings;
}

/** Defines a task: its name, what goes in, what comes out, and how it is tried again. */
export function defineTask<I extends StandardSchemaV1, O extends StandardSchemaV1>(
  options: TaskOptions<I, O>,
): Task<InputOf<I>, OutputOf<I>, InputOf<O>, OutputOf<O>> {
  const { name, input, output, ...settings } = options;
  const definition: AnyTask = { name, input, output, settings };
  return {
    ...definition,
    handle: (run) => ({ task: name, definition, run: run as Handler["run"] }),
  };
}
