import { type CpuReading, cpuPerTask, readCpu } from "../cpu-meter.ts";
import { median, rounded } from "../statistics.ts";
import type { DrainLoad, Subject } from "../subjects/subject.ts";

/** One repetition: what was waiting was worked off, and the outbox was empty at the end. */
export interface DrainRun {
  readonly submitMs: number;
  readonly drainMs: number;
  readonly submit: Usage;
  readonly drain: Usage;
}

interface Usage {
  readonly walBytesPerTask: number;
  readonly cpuMicrosPerTask: Record<string, number>;
}

export interface DrainFigures {
  readonly submitPerSecond: number;
  readonly drainPerSecond: number;
  readonly totalPerSecond: number;
  readonly bestTotalPerSecond: number;
  readonly walBytesPerTask: number;
  readonly submitCpuMicrosPerTask: Record<string, number>;
  readonly drainCpuMicrosPerTask: Record<string, number>;
}

export async function runDrain(subject: Subject, load: DrainLoad): Promise<DrainRun> {
  await subject.cluster.settle();
  const atStart = await mark(subject);
  await subject.submit!(load);
  const atSubmitted = await mark(subject);
  await subject.beginDrain?.(load);
  const atReady = await mark(subject);
  await subject.drain!(load);
  const atEnd = await mark(subject);
  await subject.check?.(load);
  return {
    submitMs: atSubmitted.at - atStart.at,
    drainMs: atEnd.at - atReady.at,
    submit: usage(atStart, atSubmitted, load.count),
    drain: usage(atReady, atEnd, load.count),
  };
}

export function summarizeDrain(runs: readonly DrainRun[], count: number): DrainFigures {
  const perSecond = (ms: number) => rounded((count / ms) * 1_000);
  const totals = runs.map((run) => run.submitMs + run.drainMs);
  return {
    submitPerSecond: perSecond(median(runs.map((run) => run.submitMs))),
    drainPerSecond: perSecond(median(runs.map((run) => run.drainMs))),
    totalPerSecond: perSecond(median(totals)),
    bestTotalPerSecond: perSecond(Math.min(...totals)),
    walBytesPerTask: rounded(median(runs.map((run) => run.submit.walBytesPerTask + run.drain.walBytesPerTask))),
    submitCpuMicrosPerTask: medians(runs.map((run) => run.submit.cpuMicrosPerTask)),
    drainCpuMicrosPerTask: medians(runs.map((run) => run.drain.cpuMicrosPerTask)),
  };
}

interface Mark {
  readonly at: number;
  readonly cpu: CpuReading;
  readonly wal: number;
}

async function mark(subject: Subject): Promise<Mark> {
  const at = performance.now();
  return { at, cpu: readCpu(subject.processes), wal: await subject.cluster.readWal() };
}

const usage = (from: Mark, to: Mark, count: number): Usage => ({
  walBytesPerTask: Math.round((to.wal - from.wal) / count),
  cpuMicrosPerTask: cpuPerTask(from.cpu, to.cpu, count),
});

function medians(readings: readonly Record<string, number>[]): Record<string, number> {
  const roles = Object.keys(readings[0] ?? {});
  return Object.fromEntries(
    roles.map((role) => [role, rounded(median(readings.map((reading) => reading[role] ?? 0)))]),
  );
}
