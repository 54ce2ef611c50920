import type { DurableContext } from "./durable-context.ts";

/** What a handler is given beside its input. */
export interface TaskContext extends DurableContext {
  /**
   * Aborts when the attempt no longer counts or must end. Its reason is a `TaskAbortedError` of `@runmesh/worker`
   * whose `cause` is "timeout", "cancelled", "lease_lost", "stopping", or "suspended": then the handler is run again
   * from its top later.
   */
  readonly signal: AbortSignal;
  /** Rises with every lease of the task. Pass it on to other systems that can refuse older ones. */
  readonly fence: bigint;
  /** 1 for the first. */
  readonly attempt: number;
  readonly runId: string;
  readonly taskId: string;
  /** Key of the task in its graph. */
  readonly key: string;
  readonly workflow: string;
  /** The last progress of the attempt before; undefined where it told none. */
  readonly lastProgress: unknown;
  /** W3C traceparent of the start, where it had one. */
  readonly traceparent: string | undefined;
  readonly log: TaskLog;
  /** Tells how far the handler is: any JSON of at most 64 KiB. The last value is kept and reaches the next attempt. */
  progress(value: unknown): void;
}

/** Lines that are kept with the attempt, at most 8 KiB each. */
export interface TaskLog {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}
