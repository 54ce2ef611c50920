import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startChild } from "../child.ts";
import { openCluster } from "../cluster.ts";
import { type Subject, stopAll } from "./subject.ts";

const FOLDER = fileURLToPath(new URL("../peers/", import.meta.url));

/** Installs what the mesh is compared with, the first time. */
export async function installPeers(): Promise<void> {
  if (existsSync(`${FOLDER}node_modules/.package-lock.json`)) return;
  console.error("Installing the peers of the comparison (npm ci in tests/bench/peers).");
  const child = spawn("npm", ["ci", "--no-audit", "--no-fund"], {
    cwd: FOLDER,
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`npm ci in ${FOLDER} ended with ${code}`);
}

export async function openGraphile(): Promise<Subject> {
  const cluster = await openCluster("graphile");
  const child = await startChild("peers/graphile.ts");
  await child.call("start", cluster.url);
  return {
    name: "graphile-worker",
    cluster,
    processes: { postgres: { postmaster: cluster.postmaster }, process: { pid: child.pid } },
    submit: (load) => child.call("submit", load),
    beginDrain: ({ slots }) => child.call("work", { slots }),
    async drain({ count }) {
      await child.call("untilHandled", count);
      await cluster.untilEmpty(["graphile_worker._private_jobs"]);
    },
    check: () => child.call("rest"),
    beginWork: (slots) => child.call("work", { slots }),
    endWork: () => child.call("rest"),
    latency: (count) => child.call("latency", count),
    stop: () => stopAll([child], cluster),
  };
}

export async function openDbos(): Promise<Subject> {
  const cluster = await openCluster("dbos");
  const child = await startChild("peers/dbos.ts");
  await child.call("start", cluster.url);
  return {
    name: "dbos",
    cluster,
    processes: { postgres: { postmaster: cluster.postmaster }, process: { pid: child.pid } },
    chains: (load) => child.call("chains", load),
    fanOut: (width) => child.call("fanOut", width),
    latency: (count) => child.call("latency", count),
    stop: () => stopAll([child], cluster),
  };
}

export async function openPlainSql(): Promise<Subject> {
  const cluster = await openCluster("plain-sql");
  const child = await startChild("processes/plain-sql.ts");
  await child.call("start", cluster.url);
  return {
    name: "plain SQL",
    cluster,
    processes: { postgres: { postmaster: cluster.postmaster }, process: { pid: child.pid } },
    submit: (load) => child.call("submit", load),
    drain: () => child.call("drain"),
    async check({ count }) {
      const [row] = await cluster.query<{ good: number }>(
        "SELECT count(*)::int AS good FROM (SELECT state FROM run ORDER BY id DESC LIMIT $1) AS newest WHERE state = 4",
        [count],
      );
      if (row?.good !== count) throw new Error(`plain SQL ended ${row?.good} of ${count} runs`);
    },
    chains: (load) => child.call("chains", load),
    fanOut: (width) => child.call("fanOut", width),
    latency: (count) => child.call("latency", count),
    stop: () => stopAll([child], cluster),
  };
}
