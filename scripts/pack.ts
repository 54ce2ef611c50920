/** Builds the packages that people install and packs them, as publishing would. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** In the order in which they are built: each after those it needs. */
const PACKAGES = [
  { folder: "gen", isBuilt: false },
  { folder: "sdk/client", isBuilt: true },
  { folder: "sdk/worker", isBuilt: true },
];

export interface PackedPackage {
  readonly name: string;
  readonly version: string;
  /** In the repository. */
  readonly folder: string;
  /** The tarball. */
  readonly file: string;
  /** What is in it. */
  readonly paths: readonly string[];
}

interface NpmPacked {
  readonly name: string;
  readonly version: string;
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}

/** Packs contracts, client and worker into a folder. */
export function packPackages(destination: string): PackedPackage[] {
  return PACKAGES.map(({ folder, isBuilt }) => {
    if (isBuilt) build(folder);
    const args = ["pack", join(ROOT, folder), "--pack-destination", destination, "--json"];
    const answer = execFileSync("npm", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
    const { name, version, filename, files } = readPacked(answer);
    return { name, version, folder, file: join(destination, filename), paths: files.map((file) => file.path) };
  });
}

/** From nothing: a file that is left over from an earlier build would be packed as well. */
function build(folder: string): void {
  rmSync(join(ROOT, folder, "dist"), { recursive: true, force: true });
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  execFileSync(tsc, ["-p", join(ROOT, folder, "tsconfig.build.json")], {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
  });
}

/** npm answers an array, and since version 11.12 an object by name. */
function readPacked(answer: string): NpmPacked {
  return (Object.values(JSON.parse(answer)) as NpmPacked[])[0]!;
}
