import { cpus, loadavg } from "node:os";
import type { MeshReport } from "./mesh.ts";
import type { DrainFigures } from "./scenarios/drain.ts";
import { rounded } from "./statistics.ts";
import { section } from "./table.ts";

/** Where a figure comes from: others can be compared with only by the ratios. */
export interface Circumstances {
  readonly cores: number;
  readonly cpu: string;
  readonly node: string;
  readonly loadBefore: number;
}

/** Above it others had the machine as well, and the figures say little. */
const QUIET_LOAD = 1.5;

export function readCircumstances(): Circumstances {
  return {
    cores: cpus().length,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    node: process.version,
    loadBefore: rounded(loadavg()[0] ?? 0),
  };
}

export function describeCircumstances({ cores, cpu, node, loadBefore }: Circumstances): string[] {
  const lines = [`${cores} cores (${cpu}), Node ${node}, load ${loadBefore} before.`];
  if (loadBefore > QUIET_LOAD) lines.push(`NOISY: the load was over ${QUIET_LOAD}; measure again on a quiet machine.`);
  return lines;
}

/** The mesh's figure over a peer's, as in "1.25 × graphile-worker"; above 1 the mesh is better. */
export interface Ratio {
  readonly figure: string;
  readonly peer: string;
  readonly ratio: number;
}

export function compare(report: MeshReport): Ratio[] {
  const ratios: Ratio[] = [];
  const add = <T>(
    figure: string,
    all: Record<string, T> | undefined,
    read: (of: T) => number,
    fewerIsBetter = false,
  ) => {
    const entries = Object.entries(all ?? {});
    const ours = entries.filter(([name]) => name.startsWith("runmesh"));
    const peers = entries.filter(([name]) => !name.startsWith("runmesh"));
    for (const [name, own] of ours) {
      for (const [peer, other] of peers) {
        const quotient = read(own) / read(other);
        ratios.push({ figure: `${figure}, ${name}`, peer, ratio: rounded(fewerIsBetter ? 1 / quotient : quotient) });
      }
    }
  };
  add("total tasks/s", report.drain, (of) => of.totalPerSecond);
  add("chain steps/s", report.chains, (of) => of.stepsPerSecond);
  add("fan-out time", report.fanOut, (of) => of.ms, true);
  add("latency p50", report.latency, (of) => of.p50Ms, true);
  return ratios;
}

export function describeMesh(report: MeshReport): string[] {
  return [
    ...section(
      "How the mesh compares (above 1: the mesh is better)",
      ["figure", "peer", "ratio"],
      compare(report).map(({ figure, peer, ratio }) => [figure, peer, `${ratio} ×`]),
    ),
    ...(report.drain === undefined ? [] : describeDrain(report.drain)),
    ...section(
      "PostgreSQL's CPU by statement of the mesh, 600 leases",
      ["statement", "µs/task", "calls", "µs/call"],
      (report.statements ?? []).map((of) => [of.name, of.microsPerTask, of.calls, of.microsPerCall].map(String)),
    ),
    ...section(
      "3-step chains, 100 in flight",
      ["system", "steps/s"],
      rows(report.chains, (of) => [of.stepsPerSecond]),
    ),
    ...section(
      "Fan-out to 1,000 and join, start to result, ms",
      ["system", "warm", "first"],
      rows(report.fanOut, (of) => [of.ms, of.firstMs]),
    ),
    ...section(
      "One run at a time, start to result, ms (graphile-worker: to the handler's start)",
      ["system", "p50", "p90", "p99"],
      rows(report.latency, (of) => [of.p50Ms, of.p90Ms, of.p99Ms]),
    ),
    ...Object.entries(report.limits ?? {}).flatMap(([load, kinds]) =>
      section(
        `10-step chains under limits that never stand in the way, ${load}: ms of a step, p50`,
        ["limit", "step", "added"],
        rows(kinds, (of) => [of.stepP50Ms, of.addedP50Ms]),
      ),
    ),
  ];
}

function describeDrain(drain: Record<string, DrainFigures>): string[] {
  return [
    ...section(
      "Single-task runs, per second, until the outbox is empty",
      ["system", "submit", "drain", "total", "best total", "WAL B/task"],
      rows(drain, (of) => [
        of.submitPerSecond,
        of.drainPerSecond,
        of.totalPerSecond,
        of.bestTotalPerSecond,
        of.walBytesPerTask,
      ]),
    ),
    ...section(
      "CPU of each process, µs/task: submit + drain",
      ["system", "by role"],
      rows(drain, (of) => [
        Object.keys(of.drainCpuMicrosPerTask)
          .map((role) => `${role} ${of.submitCpuMicrosPerTask[role]} + ${of.drainCpuMicrosPerTask[role]}`)
          .join(", "),
      ]),
    ),
  ];
}

const rows = <T>(all: Record<string, T> | undefined, read: (of: T) => (string | number)[]): string[][] =>
  Object.entries(all ?? {}).map(([name, of]) => [name, ...read(of).map(String)]);
