import { existsSync, globSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";

/** Programs that some suites need and npm does not bring, and how to get each. */
export const TOOLS = {
  grpcurl: "go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4",
  "grpc-health-probe": "go install github.com/grpc-ecosystem/grpc-health-probe@latest",
  actionlint: "go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
  "redis-server": "apt-get install redis-server",
  java: "apt-get install default-jre-headless",
  chromium: "apt-get install chromium",
  python3: "apt-get install python3",
  go: "https://go.dev/dl",
  iptables: "apt-get install iptables",
  curl: "apt-get install curl",
  pgbouncer: "apt-get install pgbouncer",
  zsh: "apt-get install zsh",
  fish: "apt-get install fish",
} as const;

export type Tool = keyof typeof TOOLS;

export interface MissingSuite {
  /** Relative to the folder that was searched. */
  readonly file: string;
  readonly tool: Tool;
}

/** A suite says what it needs in a comment of its own line, as `// Needs: grpcurl, curl`. */
const NEEDS = /^\/\/ Needs: (.+)$/m;

export function hasTool(tool: Tool): boolean {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.some((folder) => folder !== "" && existsSync(join(folder, tool)));
}

/** Throws with how to install it. For a suite that is collected only where its tool is, this is a second line. */
export function requireTool(tool: Tool): void {
  if (!hasTool(tool)) throw new Error(`${tool} is missing; install it: ${TOOLS[tool]}`);
}

/** Every tool that the suites below `root` ask for. */
export function findNeededTools(root: string, pattern: string): Tool[] {
  return globSync(pattern, { cwd: root }).flatMap((file) => neededTools(readFileSync(join(root, file), "utf8"), file));
}

/** The suites below `root` that cannot run here. */
export function findMissingSuites(root: string, pattern: string): MissingSuite[] {
  return globSync(pattern, { cwd: root }).flatMap((file) =>
    neededTools(readFileSync(join(root, file), "utf8"), file)
      .filter((tool) => !hasTool(tool))
      .slice(0, 1)
      .map((tool) => ({ file, tool })),
  );
}

/** One line for people: what does not run and what to install. Empty when everything runs. */
export function adviseOnMissing(missing: readonly MissingSuite[]): string {
  if (missing.length === 0) return "";
  const tools = [...new Set(missing.map((suite) => suite.tool))];
  const advice = tools.map((tool) => `${tool} (${TOOLS[tool]})`).join(", ");
  return `Suites left out: ${missing.length}; to run them install ${advice}`;
}

function neededTools(source: string, file: string): Tool[] {
  const list = NEEDS.exec(source)?.[1] ?? "";
  const names = list.split(",").map((name) => name.trim());
  return names.filter((name) => name !== "").map((name) => readTool(name, file));
}

function readTool(name: string, file: string): Tool {
  const tool = (Object.keys(TOOLS) as Tool[]).find((known) => known === name);
  if (tool === undefined) throw new Error(`${file} needs ${name}, which tools.ts does not know`);
  return tool;
}
