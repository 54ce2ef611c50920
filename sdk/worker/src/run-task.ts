import type { DurableContext, Handler, Task, TaskContext, TaskLog } from "@runmesh/client";
import { createFakeDurable, type FakeMesh } from "./fake-durable.ts";
import { runHandler } from "./run-handler.ts";

export interface RunTaskOptions extends FakeMesh {
  readonly signal?: AbortSignal;
  /** Default 1. */
  readonly attempt?: number;
  /** Default 1n. */
  readonly fence?: bigint;
  readonly lastProgress?: unknown;
  /** Told what the handler logs. */
  readonly onLog?: (level: keyof TaskLog, message: string) => void;
  /** Told the handler's progress. */
  readonly onProgress?: (value: unknown) => void;
}

/**
 * Runs a task's handler as a worker would, with a fake context: input checked, output checked and passed through JSON.
 * For tests of handlers; no mesh is needed.
 */
export async function runTask<W, H, R, S>(
  task: Task<W, H, R, S>,
  handler: Handler | ((input: H, context: TaskContext) => Promise<R> | R),
  input: W,
  options: RunTaskOptions = {},
): Promise<S> {
  const { run } = typeof handler === "function" ? task.handle(handler) : handler;
  const durable = createFakeDurable(`1/${task.name}`, options);
  const context = createContext(task.name, options, durable);
  const handled = { task: task.name, definition: task, run };
  const json = await runHandler(handled, input, context, () => durable.journal.close());
  return JSON.parse(new TextDecoder().decode(json));
}

function createContext(name: string, options: RunTaskOptions, durable: DurableContext): TaskContext {
  const tell = (level: keyof TaskLog) => (message: string) => options.onLog?.(level, message);
  const { step, sleep, waitForSignal, startRun } = durable;
  return {
    signal: options.signal ?? new AbortController().signal,
    fence: options.fence ?? 1n,
    attempt: options.attempt ?? 1,
    runId: "1",
    taskId: "1048576",
    key: name,
    workflow: "test",
    lastProgress: options.lastProgress,
    traceparent: undefined,
    log: { debug: tell("debug"), info: tell("info"), warn: tell("warn"), error: tell("error") },
    progress: (value) => options.onProgress?.(value),
    step,
    sleep,
    waitForSignal,
    startRun,
  };
}
