import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { hasTool, TOOLS, type Tool } from "./tools.ts";

const INSTALL_MS = 15 * 60_000;
const GO_INSTALL = /^go install (\S+)@(\S+)$/;

/** Folder of what was installed for tests: outside any checkout, and kept from one to the next. */
export function toolCache(env: NodeJS.ProcessEnv = process.env): string {
  return env.RUNMESH_TOOLS ?? join(env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "runmesh", "tools");
}

/**
 * Puts tools that were installed before on this process's PATH. With `install` the missing ones that `go install` can
 * bring are installed first, each into a folder of its version. One that cannot be had stays missing.
 */
export function provideTools(tools: readonly Tool[], options: { install: boolean; cache?: string }): void {
  for (const tool of new Set(tools)) {
    if (hasTool(tool)) continue;
    const [, pkg, version] = GO_INSTALL.exec(TOOLS[tool]) ?? [];
    if (pkg === undefined) continue;
    const folder = join(options.cache ?? toolCache(), `${tool}-${version}`);
    if (!existsSync(join(folder, tool)) && !(options.install && goInstall(`${pkg}@${version}`, folder))) continue;
    process.env.PATH = `${folder}${delimiter}${process.env.PATH ?? ""}`;
  }
}

function goInstall(target: string, folder: string): boolean {
  if (!hasTool("go")) return false;
  console.error(`Installing ${target}; this takes a minute or two.`);
  mkdirSync(folder, { recursive: true });
  const { status } = spawnSync("go", ["install", "-ldflags=-s -w", target], {
    cwd: folder,
    env: { ...process.env, GOBIN: folder, GOFLAGS: "-mod=mod" },
    stdio: ["ignore", "inherit", "inherit"],
    timeout: INSTALL_MS,
  });
  return status === 0;
}
