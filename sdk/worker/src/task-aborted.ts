/** Why an attempt was aborted. */
export type AbortCause = "timeout" | "cancelled" | "lease_lost" | "stopping" | "suspended";

const SAID: Record<AbortCause, string> = {
  timeout: "the attempt took longer than its time-out",
  cancelled: "the run was cancelled or has ended",
  lease_lost: "the lease was lost: another worker may have the task",
  stopping: "the worker is stopping",
  suspended: "the handler waits, and runs again from its top later",
};

/** The reason of a handler's `ctx.signal`. */
export class TaskAbortedError extends Error {
  override readonly name = "TaskAbortedError";
  override readonly cause: AbortCause;

  constructor(cause: AbortCause) {
    super(SAID[cause]);
    this.cause = cause;
  }
}
