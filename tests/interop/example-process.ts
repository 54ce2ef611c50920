import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { ROOT } from "../markdown.ts";

export interface ExampleProcess {
  /** What it printed first. */
  readonly line: string;
  /** Stops it as Ctrl-C does; answers the signal that ended it, or its exit code. */
  interrupt(): Promise<string | number>;
}

const FIRST_LINE_MS = 60_000;
const EXIT_MS = 30_000;

/** Runs a program of the repository against a mesh, as `npm run example` does, until its first line. */
export async function startExample(file: string, url: string): Promise<ExampleProcess> {
  const child = spawn(process.execPath, ["--conditions=runmesh-source", file], {
    cwd: ROOT,
    env: { ...process.env, RUNMESH_URL: url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit").then(([code, signal]) => (signal ?? code) as string | number);
  const lines = createInterface({ input: child.stdout });
  const signal = AbortSignal.timeout(FIRST_LINE_MS);
  const first = once(lines, "line", { signal }).then(([line]) => line as string);
  const ended = exited.then((code) => Promise.reject(new Error(`${file} ended with ${code} and printed nothing`)));
  ended.catch(() => undefined);
  try {
    return { line: await Promise.race([first, ended]), interrupt };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }

  async function interrupt(): Promise<string | number> {
    child.kill("SIGINT");
    const overdue = setTimeout(() => child.kill("SIGKILL"), EXIT_MS);
    return exited.finally(() => clearTimeout(overdue));
  }
}
