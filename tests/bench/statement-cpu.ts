import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import type { Cluster } from "./cluster.ts";

/** What PostgreSQL itself used for one statement: user and system time, parsing and planning included. */
export interface StatementCpu {
  readonly text: string;
  readonly calls: number;
  readonly micros: number;
}

/** `log_statement_stats` prints a block for each message of the protocol; the statement's text follows it. */
const BLOCK = /LOG: {2}(?:QUERY|PARSE MESSAGE|BIND MESSAGE|(EXECUTE MESSAGE)) STATISTICS\n/;
const TIMES = /!\s+([\d.]+) s user, ([\d.]+) s system, [\d.]+ s elapsed/;
const STATEMENT = /STATEMENT: {2}([\s\S]*)$/;
const SETTINGS_MS = 100;

/** Has the server note the CPU of each statement while `work` runs. The noting itself costs the server some. */
export async function readStatementCpu(cluster: Cluster, work: () => Promise<void>): Promise<StatementCpu[]> {
  await set(cluster, "on");
  const log = openSync(cluster.logFile, "r");
  try {
    const from = fstatSync(log).size;
    await work();
    await set(cluster, "off");
    const text = Buffer.alloc(fstatSync(log).size - from);
    readSync(log, text, 0, text.length, from);
    return summarize(text.toString("utf8"));
  } finally {
    closeSync(log);
  }
}

/** Reads the server's log. */
export function summarize(log: string): StatementCpu[] {
  const sums = new Map<string, { calls: number; micros: number }>();
  // A line that does not begin with a tab begins an entry; DETAIL and STATEMENT are entries of the block before.
  for (const block of log.split(/^(?=\S.* LOG: )/m)) {
    const head = BLOCK.exec(block);
    const times = TIMES.exec(block);
    const statement = STATEMENT.exec(block)?.[1];
    if (head === null || times === null || statement === undefined) continue;
    const text = statement.replaceAll("\n\t", "\n").trim();
    const sum = sums.get(text) ?? { calls: 0, micros: 0 };
    sums.set(text, {
      calls: sum.calls + (head[1] === undefined ? 0 : 1),
      micros: sum.micros + (Number(times[1]) + Number(times[2])) * 1e6,
    });
  }
  return [...sums].map(([text, sum]) => ({ text, ...sum })).sort((a, b) => b.micros - a.micros);
}

async function set(cluster: Cluster, value: "on" | "off"): Promise<void> {
  await cluster.query(`ALTER SYSTEM SET log_statement_stats = ${value}`);
  await cluster.query("SELECT pg_reload_conf()");
  // Each backend reads the settings again before its next statement.
  await new Promise((resolve) => setTimeout(resolve, SETTINGS_MS));
}
