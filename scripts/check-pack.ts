// Checks what publishing would publish: nothing is missing that the packages promise, and nothing is in them that
// belongs to the repository alone.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { type PackedPackage, packPackages } from "./pack.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const IMPORT = /\b(?:from|import)\s*\(?\s*"([^"\n]+)"/g;
const EXACT = /^\d+\.\d+\.\d+$/;

interface Manifest {
  readonly version: string;
  readonly license?: string;
  readonly exports: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const scratch = mkdtempSync(join(tmpdir(), "runmesh-pack-"));
try {
  const faults = packPackages(scratch).flatMap((packed) => {
    const manifest: Manifest = JSON.parse(readFileSync(join(ROOT, packed.folder, "package.json"), "utf8"));
    const found = [...checkFiles(packed), ...checkExports(packed, manifest), ...checkImports(packed, manifest)];
    return [...found, ...checkManifest(manifest)].map((fault) => `${packed.name}: ${fault}`);
  });
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
} finally {
  rmSync(scratch, { recursive: true });
}

function checkFiles({ paths }: PackedPackage): string[] {
  const missing = ["README.md", "LICENSE"].filter((path) => !paths.includes(path));
  const foreign = paths.filter((path) => /\.test(-d)?\.|\.tsbuildinfo$|tsconfig|(^|\/)test\//.test(path));
  return [...missing.map((path) => `${path} is missing`), ...foreign.map((path) => `${path} does not belong there`)];
}

/** What stands under a condition of this repository is not meant for those who install it. */
function checkExports({ paths }: PackedPackage, { exports }: Manifest): string[] {
  return Object.entries(exports).flatMap(([name, conditions]) =>
    Object.entries(conditions)
      .filter(([condition]) => condition !== "runmesh-source")
      .filter(([, target]) => !isThere(target.replace("./", ""), paths))
      .map(([condition, target]) => `export ${name}: ${condition} ${target} is not in the package`),
  );
}

function isThere(target: string, paths: readonly string[]): boolean {
  const [before = "", after] = target.split("*");
  if (after === undefined) return paths.includes(target);
  return paths.some((path) => path.startsWith(before) && path.endsWith(after));
}

function checkImports({ folder, paths }: PackedPackage, { dependencies = {} }: Manifest): string[] {
  const scripts = paths.filter((path) => path.endsWith(".js") && !path.includes("generated/"));
  return scripts.flatMap((path) => {
    const names = [...readFileSync(join(ROOT, folder, path), "utf8").matchAll(IMPORT)].map((match) => match[1]!);
    return names.filter((name) => !resolves(name, path, paths, dependencies)).map((name) => `${path} imports ${name}`);
  });
}

function resolves(
  name: string,
  from: string,
  paths: readonly string[],
  dependencies: Readonly<Record<string, string>>,
): boolean {
  if (name.startsWith(".")) return paths.includes(posix.join(posix.dirname(from), name));
  if (name.startsWith("node:")) return builtinModules.includes(name.slice("node:".length));
  const pkg = name
    .split("/")
    .slice(0, name.startsWith("@") ? 2 : 1)
    .join("/");
  return dependencies[pkg] !== undefined;
}

function checkManifest({ version, license, dependencies = {} }: Manifest): string[] {
  const loose = Object.entries(dependencies).filter(([name, wanted]) =>
    name.startsWith("@runmesh/") ? wanted !== version : !EXACT.test(wanted),
  );
  const unlicensed = license === "Apache-2.0" ? [] : ["license is not Apache-2.0"];
  return [...loose.map(([name, wanted]) => `${name} is ${wanted}`), ...unlicensed];
}
