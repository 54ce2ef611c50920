import { execFile } from "node:child_process";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { type CodeBlock, ROOT } from "../markdown.ts";

const run = promisify(execFile);
const DOCUMENTED = "127.0.0.1:7400";
const TIMEOUT_MS = 50_000;
const BIN = join(ROOT, "node_modules/.bin");

export interface ShellSetting {
  readonly url: string;
  readonly runId?: string;
  /** Default the repository. */
  readonly cwd?: string;
}

/** Runs a block of the documentation as a reader would, on this mesh and with this run; answers what it printed. */
export async function runShellBlock(block: CodeBlock, p: ShellSetting): Promise<string> {
  const { host } = new URL(p.url);
  const script = block.text.replaceAll(DOCUMENTED, host).replaceAll("RUN_ID", p.runId ?? "RUN_ID");
  const { stdout } = await run("bash", ["-euo", "pipefail", "-c", script], {
    cwd: p.cwd ?? ROOT,
    env: { ...process.env, PATH: `${BIN}${delimiter}${process.env.PATH}`, RUNMESH_URL: p.url },
    timeout: TIMEOUT_MS,
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout;
}

/** JSON objects printed one after the other, each over many lines: its last line is a brace alone. */
export function readJsonObjects(text: string): Record<string, unknown>[] {
  return text
    .trimEnd()
    .split(/(?<=^\})\n/m)
    .map((object) => JSON.parse(object));
}
