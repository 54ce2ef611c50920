import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { ROOT } from "./markdown.ts";

export interface SourceFile {
  /** From the root, as in "services/gateway/src/service.ts". */
  readonly path: string;
  readonly text: string;
  /** A test, or what only tests import. */
  readonly isTest: boolean;
  /** What it imports: packages as they are named, files of this repository from the root. */
  readonly imports: readonly string[];
}

const FILES = "{services,sdk,scripts,tests,examples}/**/*.{ts,mts,mjs,js}";
const NOT_OURS = /(^|\/)(node_modules|dist|generated|peers)\//;
const TEST =
  /\.test(-d)?\.ts$|^services\/internal\/testing\/|^tests\/|\/(test|testing)\/|\/testing\.ts$|-conformance\.ts$/;
const IMPORT = /^(?:(?:import|export|\})[^"\n]*\bfrom|import) "([^"\n]+)";|\bimport\(\s*"([^"]+)"/gm;

/** Everything that people wrote. */
export function readSourceFiles(): SourceFile[] {
  return globSync(FILES, { cwd: ROOT })
    .filter((path) => !NOT_OURS.test(path))
    .sort()
    .map((path) => {
      const text = readFileSync(join(ROOT, path), "utf8");
      return { path, text, isTest: TEST.test(path), imports: readImports(path, text) };
    });
}

function readImports(path: string, text: string): string[] {
  const names = [...text.matchAll(IMPORT)].map((match) => match[1] ?? match[2]!);
  return names.map((name) => (name.startsWith(".") ? normalize(join(dirname(path), name)) : name));
}
