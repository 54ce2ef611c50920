#!/usr/bin/env node
// Starts the command with a Node that can run it. Plain JavaScript without dependencies, as it must load on old ones.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const OLDEST = [22, 18];
const CONDITION = "--conditions=runmesh-source";
const WRONG_USAGE = 2;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(root, "src", "main.ts");
const inRepository = existsSync(source);
const entry = inRepository ? source : join(root, "dist", "main.js");

function isNewEnough() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

/** The binary of the npm package `node`, where one is installed beside this package or above it. */
function findPackagedNode() {
  try {
    const folder = dirname(createRequire(import.meta.url).resolve("node/package.json"));
    const binary = join(folder, "bin", process.platform === "win32" ? "node.exe" : "node");
    return existsSync(binary) ? binary : undefined;
  } catch {
    return undefined;
  }
}

/** Runs the entry in a child that shares the terminal, hands signals on, and ends as the child ends. */
function startAgain(node) {
  const flags = inRepository ? [CONDITION] : [];
  const child = spawn(node, [...flags, entry, ...process.argv.slice(2)], { stdio: "inherit" });
  // The terminal sends SIGINT to the child as well; this process only has to outlive it.
  process.on("SIGINT", () => {});
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    console.error(`runmesh: cannot start ${node}: ${error.message}`);
    process.exitCode = WRONG_USAGE;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
  });
}

const packaged = isNewEnough() ? process.execPath : findPackagedNode();
if (packaged === undefined) {
  console.error(
    `runmesh needs Node ${OLDEST.join(".")} or later, and this is ${process.version} (${process.execPath}).\n` +
      "Install a newer Node, or run `npm install node@24` in the project: runmesh finds it there.",
  );
  process.exitCode = WRONG_USAGE;
} else if (packaged === process.execPath && !inRepository) {
  await import(pathToFileURL(entry).href);
} else {
  startAgain(packaged);
}
