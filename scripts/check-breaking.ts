/**
 * Fails where the contracts, as they stand, break a caller of the last commit or of the one before it: contracts only
 * grow. `node scripts/check-breaking.ts [folder]`.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const BUF = resolve(ROOT, "node_modules/.bin/buf");
const folder = process.argv[2] ?? ROOT;
const MAX_CONTRACTS_BYTES = 64 * 1024 * 1024;

const bases = ["HEAD", "HEAD^"].filter(isCommit);
if (bases.length === 0) console.error("no commit is here to compare the contracts with");
for (const base of bases) {
  if (!isCompatible(base)) {
    console.error(
      `The contracts break callers of ${base}: a field or method, once there, keeps its name, number and type.`,
    );
    process.exitCode = 1;
  }
}

/** In a shallow clone, or an unpacked archive, there may be none. */
function isCommit(name: string): boolean {
  return spawnSync("git", ["rev-parse", "--verify", "--quiet", `${name}^{commit}`], { cwd: folder }).status === 0;
}

function isCompatible(base: string): boolean {
  const input = execFileSync("git", ["archive", base, "--", "proto", "buf.yaml"], {
    cwd: folder,
    maxBuffer: MAX_CONTRACTS_BYTES,
  });
  const args = ["breaking", "--against", "-#format=tar"];
  const { status, error } = spawnSync(BUF, args, { cwd: folder, input, stdio: ["pipe", "inherit", "inherit"] });
  if (error !== undefined) throw error;
  return status === 0;
}
