import { readdirSync, readFileSync } from "node:fs";

/** CPU of a role, as of a moment, in microseconds. */
export type CpuReading = Readonly<Record<string, number>>;

/** A role's processes: one of ours, or a PostgreSQL server with all its children. */
export type CpuSource = { readonly pid: number } | { readonly postmaster: number };

/** `_SC_CLK_TCK`: Linux reports times to user space in hundredths of a second, whatever its own tick. */
const MICROS_PER_TICK = 10_000;
const PARENT = 1;
const UTIME = 11;
const STIME = 12;
const CHILD_UTIME = 13;
const CHILD_STIME = 14;

/** User and system time of each role since its start. Only on Linux; elsewhere every role reads 0. */
export function readCpu(sources: Readonly<Record<string, CpuSource>>): CpuReading {
  return Object.fromEntries(
    Object.entries(sources).map(([role, source]) => [
      role,
      MICROS_PER_TICK * ("pid" in source ? ownTicks(source.pid) : treeTicks(source.postmaster)),
    ]),
  );
}

/** Most memory a process ever had resident, in bytes. Only on Linux. */
export function readPeakMemory(pid: number): number {
  const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1] ?? 0) * 1024;
}

/** What each role used between two readings, per task. */
export function cpuPerTask(before: CpuReading, after: CpuReading, tasks: number): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after).map(([role, micros]) => [role, round((micros - (before[role] ?? 0)) / tasks)]),
  );
}

/** The fields of `/proc/<pid>/stat` after the name, which may hold anything. */
function readStat(pid: number | string): readonly string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    // It ended meanwhile, or there is no /proc.
    return undefined;
  }
}

function ownTicks(pid: number): number {
  const stat = readStat(pid);
  return stat === undefined ? 0 : Number(stat[UTIME]) + Number(stat[STIME]);
}

/** A server's backends that ended are counted in the postmaster's children. */
function treeTicks(postmaster: number): number {
  const stat = readStat(postmaster);
  if (stat === undefined) return 0;
  let ticks = ownTicks(postmaster) + Number(stat[CHILD_UTIME]) + Number(stat[CHILD_STIME]);
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const child = readStat(name);
    if (child !== undefined && Number(child[PARENT]) === postmaster)
      ticks += Number(child[UTIME]) + Number(child[STIME]);
  }
  return ticks;
}

const round = (value: number): number => Math.round(value * 10) / 10;
