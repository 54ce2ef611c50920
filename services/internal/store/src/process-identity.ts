import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

export interface ProcessIdentity {
  /** Boot and start time: a number that was given to another process has another one. */
  readonly startedAt: string;
  readonly commandLine: string;
}

/** The process that runs under this number now. A zombie is no longer one, though the kernel still answers for it. */
export function findProcess(pid: number): ProcessIdentity | undefined {
  return process.platform === "linux" ? findLinuxProcess(pid) : findByPs(pid);
}

function findLinuxProcess(pid: number): ProcessIdentity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the program's name in parentheses, which may hold spaces and parentheses itself.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const state = fields[0];
    if (state === "Z" || state === "X") return undefined;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const commandLine = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
    return { startedAt: `${boot} ${fields[19]}`, commandLine };
  } catch {
    return undefined;
  }
}

function findByPs(pid: number): ProcessIdentity | undefined {
  if (process.platform === "win32") return signalReaches(pid) ? { startedAt: "", commandLine: "" } : undefined;
  try {
    const env = { ...process.env, LC_ALL: "C" };
    const line = execFileSync("ps", ["-o", "state=,lstart=,command=", "-p", String(pid)], { env, encoding: "utf8" });
    const [, state, startedAt, commandLine] = /^(\S+)\s+(\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s+(.*)/.exec(line.trim()) ?? [];
    if (state === undefined || state.startsWith("Z")) return undefined;
    return { startedAt: startedAt ?? "", commandLine: commandLine ?? "" };
  } catch {
    return undefined;
  }
}

function signalReaches(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
