import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { toolCache } from "@runmesh/testing/tool-cache";
import { getCodeBlock, ROOT, readCodeBlocks } from "../markdown.ts";

const run = promisify(execFile);
/** The oldest that the packages say they run on. */
const OLDEST_NODE = "22.18.0";
const NPM_MS = 150_000;
const PROGRAM_MS = 50_000;
const OURS =
  /^(NODE_(OPTIONS|PATH|ENV)|VITEST.*|RUNMESH_.*|INIT_CWD|npm_(command|execpath|lifecycle_.*|package_.*|config_(.*prefix|allow_scripts)))$/;
/** What a user adds beside zod, at the versions that this repository has. */
const TOOLS = ["esbuild", "typescript", "@types/node"];

export interface PackedProject extends AsyncDisposable {
  readonly folder: string;
  /** Runs a program of the project on the oldest Node, with nothing of this repository in reach. */
  node(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string>;
  /** Runs a tool that npm installed into it. */
  tool(name: string, args: readonly string[]): Promise<void>;
}

/** An empty project outside the repository, made as the author's page says, with the packed packages installed. */
export async function createPackedProject(): Promise<PackedProject> {
  const folder = await mkdtemp(join(tmpdir(), "runmesh-project-"));
  const { devDependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  const blocks = readCodeBlocks("docs/sdk.md");
  const pinned = (name: string) => `${name}@${devDependencies[name]}`;
  const shell = async (block: string) => {
    const script = block.replaceAll("../my-project", folder).replace(/\bzod\b/, pinned("zod"));
    await run("bash", ["-euo", "pipefail", "-c", script], { cwd: ROOT, env: bareEnv(), timeout: NPM_MS });
  };
  await shell(getCodeBlock(blocks, "npm run packages").text);
  await shell(getCodeBlock(blocks, "npm init -y").text);
  await cp(join(ROOT, "tests/interop/pack-project"), folder, { recursive: true });
  const tools = ["install", "--no-audit", "--no-fund", ...TOOLS.map(pinned)];
  await run("npm", tools, { cwd: folder, env: bareEnv(), timeout: NPM_MS });
  const oldest = await installOldestNode();
  return {
    folder,
    async node(args, env) {
      const options = { cwd: folder, env: { ...bareEnv(), ...env }, timeout: PROGRAM_MS };
      return (await run(oldest, [...args], options)).stdout;
    },
    async tool(name, args) {
      await run(join(folder, "node_modules/.bin", name), [...args], { cwd: folder, env: bareEnv(), timeout: NPM_MS });
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Without what `npm test`, this project's npm and vitest put into the environment. */
function bareEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !OURS.test(name)));
}

/** Kept outside the repository: it is 100 MB and never changes. */
async function installOldestNode(): Promise<string> {
  const folder = join(toolCache(), `node-${OLDEST_NODE}`);
  const binary = join(folder, "node_modules/node/bin/node");
  if (existsSync(binary)) return binary;
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "package.json"), '{"private": true}');
  const args = ["install", "--no-audit", "--no-fund", `node@${OLDEST_NODE}`];
  await run("npm", args, { cwd: folder, env: bareEnv(), timeout: NPM_MS });
  return binary;
}
