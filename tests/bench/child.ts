import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { AnswerMessage, CallMessage } from "./serve-calls.ts";

/** A process of the bench, told what to do by calls. */
export interface Child {
  readonly pid: number;
  call<T>(name: string, argument?: unknown): Promise<T>;
  /** Ends it in order, or at once where it does not. */
  stop(): Promise<void>;
}

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

const STOP_MS = 10_000;

/** Starts a process of `file`, resolved beside this one, and waits until it serves. */
export async function startChild(
  file: string,
  options: { readonly nodeFlags?: readonly string[]; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<Child> {
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), [], {
    execArgv: ["--conditions=runmesh-source", ...(options.nodeFlags ?? [])],
    env: { ...process.env, ...options.env },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const waiting = new Map<number, Waiting>();
  const ready = Promise.withResolvers<unknown>();
  waiting.set(0, ready);
  child.on("message", (message: AnswerMessage) => {
    const call = waiting.get(message.id);
    waiting.delete(message.id);
    if ("error" in message) call?.reject(new Error(`${file}: ${message.error}`));
    else call?.resolve(message.result);
  });
  child.once("exit", (code, signal) => {
    for (const call of waiting.values()) call.reject(new Error(`${file} ended (${signal ?? code})`));
  });
  await ready.promise;

  let lastId = 0;
  return {
    pid: child.pid!,
    call: <T>(name: string, argument?: unknown) =>
      new Promise<T>((resolve, reject) => {
        const id = ++lastId;
        waiting.set(id, { resolve: resolve as Waiting["resolve"], reject });
        child.send({ id, name, argument } satisfies CallMessage, (error) => error && reject(error));
      }),
    stop: () => stop(child),
  };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
  child.disconnect();
  await exit;
  clearTimeout(timer);
}
