import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface WorkerProcessOptions {
  readonly url: string;
  readonly leaseMs: number;
  readonly slots: number;
  readonly prefetch: number;
  readonly gracefulStopMs: number;
}

export interface Told {
  readonly did: "attached" | "started" | "aborted" | "said";
  readonly key?: string;
  readonly fence?: string;
  readonly cause?: string;
  readonly message?: string;
}

export interface WorkerProcess extends AsyncDisposable {
  readonly told: readonly Told[];
  kill(signal: NodeJS.Signals): void;
  /** The signal or code it ended with. */
  readonly exited: Promise<string | number>;
}

const SCRIPT = fileURLToPath(new URL("./fixtures/worker.ts", import.meta.url));

/** Starts a worker in a process of its own; resolves when the mesh knows it. */
export async function startWorkerProcess(
  options: Partial<WorkerProcessOptions> & Pick<WorkerProcessOptions, "url">,
): Promise<WorkerProcess> {
  const defaults = { leaseMs: 30_000, slots: 10, prefetch: 0, gracefulStopMs: 30_000 };
  const child = spawn(
    process.execPath,
    ["--conditions=runmesh-source", SCRIPT, JSON.stringify({ ...defaults, ...options })],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const exited = once(child, "exit").then(([code, signal]) => (signal ?? code) as string | number);
  const told: Told[] = [];
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const event = JSON.parse(line) as Told;
      told.push(event);
      if (event.did === "attached") resolve();
    });
    void exited.then((how) => reject(new Error(`the worker ended with ${how} before it was attached`)));
  });
  return {
    told,
    exited,
    kill: (signal) => void child.kill(signal),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
