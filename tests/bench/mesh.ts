import { type DrainFigures, type DrainRun, runDrain, summarizeDrain } from "./scenarios/drain.ts";
import { runDrainByStatement, type StatementFigures } from "./scenarios/drain-statements.ts";
import { type LimitReport, measureLimits } from "./scenarios/limits.ts";
import { median, percentile, rounded } from "./statistics.ts";
import { type MeshSubject, openMesh, openWholeMesh } from "./subjects/mesh-subject.ts";
import { installPeers, openDbos, openGraphile, openPlainSql } from "./subjects/peer-subjects.ts";
import type { DrainLoad, Subject } from "./subjects/subject.ts";
import { CHAIN_STEPS } from "./workloads.ts";

export const SCENARIOS = ["drain", "chains", "fan-out", "latency", "limits"] as const;
export type Scenario = (typeof SCENARIOS)[number];

export interface MeshOptions {
  readonly scenarios: readonly Scenario[];
  readonly repetitions: number;
  readonly count: number;
  /** The mesh alone, to see one's own change. */
  readonly alone: boolean;
  /** Adds a repetition in which PostgreSQL notes the CPU of each statement. */
  readonly statements: boolean;
  readonly say: (line: string) => void;
}

export interface MeshReport {
  drain?: Record<string, DrainFigures>;
  /** Of the mesh, at 600 leases: submit, drain and relay together. */
  statements?: StatementFigures[];
  chains?: Record<string, { stepsPerSecond: number }>;
  fanOut?: Record<string, { ms: number; firstMs: number }>;
  latency?: Record<string, { p50Ms: number; p90Ms: number; p99Ms: number }>;
  /** Of the mesh alone: what limits add to it. */
  limits?: LimitReport;
}

const SLOTS = 100;
const BATCH = 500;
/** Batches under way at once. */
const IN_FLIGHT = 2;
const PREFETCHED = { "600 leases": 500, "100 leases": 0 } as const;
const CHAIN = { runs: 1_000, inFlight: 100 };
const WIDTH = 1_000;
const LATENCY_RUNS = 300;

/** Runs each scenario on the mesh and its peers in turn, so that what else the machine does meets all of them. */
export async function measureMesh(options: MeshOptions): Promise<MeshReport> {
  if (!options.alone) await installPeers();
  const report: MeshReport = {};
  const subjects: Subject[] = [];
  try {
    const mesh = await openMesh();
    subjects.push(mesh);
    if (options.scenarios.some((scenario) => scenario === "latency" || scenario === "fan-out")) {
      subjects.push(await openWholeMesh(SLOTS));
    }
    if (!options.alone) {
      for (const open of [openGraphile, openDbos, openPlainSql]) subjects.push(await open());
    }
    for (const scenario of options.scenarios) {
      options.say(`${scenario} …`);
      if (scenario === "drain") {
        report.drain = await measureDrain(subjects, options);
        if (options.statements) report.statements = await measureStatements(mesh, options.count);
      }
      if (scenario === "chains") report.chains = await measureChains(subjects, options);
      if (scenario === "fan-out") report.fanOut = await measureFanOut(subjects, options);
      if (scenario === "limits") report.limits = await measureLimits(mesh, SLOTS, options.repetitions);
      if (scenario === "latency") report.latency = await measureLatency(subjects, options);
    }
    return report;
  } finally {
    for (const subject of subjects) await subject.stop();
  }
}

async function measureDrain(subjects: readonly Subject[], { count, repetitions, say }: MeshOptions) {
  const able = subjects.filter((subject) => subject.drain !== undefined);
  const runs = new Map<string, DrainRun[]>();
  for (let repetition = 0; repetition <= repetitions; repetition++) {
    for (const subject of able) {
      // Only the mesh is told how many leases to hold: the others have a form of their own.
      const forms = subject.name === "runmesh" ? Object.entries(PREFETCHED) : ([["", 0]] as const);
      for (const [form, prefetch] of forms) {
        const load: DrainLoad = {
          // The first, as long as the others, only warms up: what is compiled late costs nothing that is measured.
          count,
          batch: BATCH,
          inFlight: IN_FLIGHT,
          slots: SLOTS,
          prefetch,
        };
        const run = await runDrain(subject, load);
        const name = form === "" ? subject.name : `${subject.name}, ${form}`;
        if (repetition === 0) continue;
        runs.set(name, [...(runs.get(name) ?? []), run]);
        say(`  ${name}: submit ${run.submitMs.toFixed(0)} ms, drain ${run.drainMs.toFixed(0)} ms`);
      }
    }
  }
  return Object.fromEntries([...runs].map(([name, all]) => [name, summarizeDrain(all, count)]));
}

function measureStatements(mesh: MeshSubject, count: number): Promise<StatementFigures[]> {
  const prefetch = PREFETCHED["600 leases"];
  return runDrainByStatement(mesh, { count, batch: BATCH, inFlight: IN_FLIGHT, slots: SLOTS, prefetch });
}

async function measureChains(subjects: readonly Subject[], { repetitions, say }: MeshOptions) {
  const able = subjects.filter((subject) => subject.chains !== undefined);
  const times = await alternate(able, repetitions, async (subject, isWarmUp) => {
    const startedAt = performance.now();
    await subject.chains!(CHAIN);
    const ms = performance.now() - startedAt;
    if (!isWarmUp) say(`  ${subject.name}: ${ms.toFixed(0)} ms`);
    return ms;
  });
  return mapTimes(times, (ms) => ({ stepsPerSecond: rounded((CHAIN.runs * CHAIN_STEPS * 1_000) / median(ms)) }));
}

async function measureFanOut(subjects: readonly Subject[], { repetitions, say }: MeshOptions) {
  const able = subjects.filter((subject) => subject.fanOut !== undefined);
  const first = new Map<string, number>();
  const times = await alternate(able, repetitions, async (subject, isWarmUp) => {
    const ms = await subject.fanOut!(WIDTH);
    if (isWarmUp) first.set(subject.name, ms);
    say(`  ${subject.name}: ${ms.toFixed(0)} ms`);
    return ms;
  });
  return mapTimes(times, (ms, name) => ({ ms: rounded(median(ms)), firstMs: rounded(first.get(name)!) }));
}

async function measureLatency(subjects: readonly Subject[], { repetitions }: MeshOptions) {
  const able = subjects.filter((subject) => subject.latency !== undefined);
  const all = new Map<string, number[]>();
  await alternate(able, repetitions, async (subject, isWarmUp) => {
    const times = await subject.latency!(LATENCY_RUNS);
    if (!isWarmUp) all.set(subject.name, [...(all.get(subject.name) ?? []), ...times]);
    return 0;
  });
  return mapTimes(all, (ms) => ({
    p50Ms: rounded(percentile(ms, 50)),
    p90Ms: rounded(percentile(ms, 90)),
    p99Ms: rounded(percentile(ms, 99)),
  }));
}

/** Each subject once to warm up, then each in turn, so many times; whatever does the work is up while it is measured. */
async function alternate(
  subjects: readonly Subject[],
  repetitions: number,
  measure: (subject: Subject, isWarmUp: boolean) => Promise<number>,
): Promise<Map<string, number[]>> {
  const times = new Map<string, number[]>();
  for (let repetition = 0; repetition <= repetitions; repetition++) {
    for (const subject of subjects) {
      await subject.cluster.settle();
      await subject.beginWork?.(SLOTS);
      try {
        const ms = await measure(subject, repetition === 0);
        if (repetition > 0) times.set(subject.name, [...(times.get(subject.name) ?? []), ms]);
      } finally {
        await subject.endWork?.();
      }
    }
  }
  return times;
}

const mapTimes = <T>(times: ReadonlyMap<string, number[]>, map: (ms: number[], name: string) => T): Record<string, T> =>
  Object.fromEntries([...times].map(([name, ms]) => [name, map(ms, name)]));
