export { createWorker, type RunMeshWorker, type WorkerOptions } from "./create-worker.ts";
export { nonRetryable, retryAfter } from "./failure.ts";
export { type RunTaskOptions, runTask } from "./run-task.ts";
export { type AbortCause, TaskAbortedError } from "./task-aborted.ts";
