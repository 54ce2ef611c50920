// Makes sure that the packages of package-lock.json are installed. It runs on whatever Node the machine has, before
// anything is installed, so it is plain JavaScript and imports nothing that npm brings.
import { spawnSync } from "node:child_process";
import { readFileSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const OLDEST_NODE = [20, 19];

const root = fileURLToPath(new URL("..", import.meta.url));
const wanted = join(root, "package-lock.json");
/** npm's own record of what it has installed. */
const installed = join(root, "node_modules", ".package-lock.json");

refuseOldNode();
if (!isFresh()) install();

function refuseOldNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return;
  fail(
    `Node ${OLDEST_NODE.join(".")} or later is needed to install; this is ${process.versions.node}. See https://nodejs.org`,
  );
}

function isFresh() {
  const record = statSync(installed, { throwIfNoEntry: false });
  if (record === undefined) return false;
  if (record.mtimeMs >= statSync(wanted).mtimeMs) return true;
  if (!holdsEveryPackage()) return false;
  // A checkout gives the lock a new time without changing it: remembered, so that the next time is quick again.
  utimesSync(installed, new Date(), new Date());
  return true;
}

function holdsEveryPackage() {
  const have = JSON.parse(readFileSync(installed, "utf8")).packages;
  const want = Object.entries(JSON.parse(readFileSync(wanted, "utf8")).packages);
  return want.every(([path, entry]) => {
    // The root and the workspaces are this checkout itself; of the optional packages only this machine's are there.
    if (!path.startsWith("node_modules/") && !path.includes("/node_modules/")) return true;
    const found = have[path];
    if (found === undefined) return entry.optional === true || entry.devOptional === true;
    return found.version === entry.version && found.integrity === entry.integrity;
  });
}

function install() {
  console.error("Installing packages (npm ci); this takes about half a minute.");
  const npm = process.env.npm_execpath;
  // Most packages want a newer Node than the one that installs them, and are run by the one that is installed: npm's
  // warnings of that, sixty lines of them, would bury what matters.
  const ci = ["ci", "--loglevel=error"];
  const [program, args] = npm === undefined ? ["npm", ci] : [process.execPath, [npm, ...ci]];
  const shell = npm === undefined && process.platform === "win32";
  const result = spawnSync(program, args, { cwd: root, stdio: "inherit", shell });
  if (result.error !== undefined) fail(`npm is needed to install and could not be run: ${result.error.message}`);
  if (result.status !== 0) fail(`npm ci ended with ${result.status ?? result.signal}; its messages are above.`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
