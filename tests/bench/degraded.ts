import { type ClaimFigures, measureClaim } from "./scenarios/claim-backlog.ts";
import { type HeldSnapshotFigures, measureHeldSnapshot } from "./scenarios/held-snapshot.ts";
import { type MemoryFigures, measureMemory } from "./scenarios/memory.ts";
import { measureRecovery, type RecoveryFigures } from "./scenarios/recovery.ts";
import { section } from "./table.ts";

export const DEGRADED_SCENARIOS = ["claim", "held-snapshot", "memory", "recovery"] as const;
export type DegradedScenario = (typeof DEGRADED_SCENARIOS)[number];

export interface DegradedOptions {
  readonly scenarios: readonly DegradedScenario[];
  readonly repetitions: number;
  /** Of every size; 1 is what is promised. */
  readonly scale: number;
  readonly say: (line: string) => void;
}

export interface DegradedReport {
  claim?: ClaimFigures;
  heldSnapshot?: HeldSnapshotFigures;
  memory?: MemoryFigures;
  recovery?: RecoveryFigures;
}

/** How the mesh does under what wears others down. */
export async function measureDegraded(options: DegradedOptions): Promise<DegradedReport> {
  const report: DegradedReport = {};
  const scaled = (size: number) => Math.max(1, Math.round(size * options.scale));
  for (const scenario of options.scenarios) {
    const startedAt = performance.now();
    options.say(`${scenario} …`);
    if (scenario === "claim") {
      const size = scaled(100_000);
      report.claim = await measureClaim({ blocked: size, future: size, ready: size }, options.repetitions, options.say);
    }
    if (scenario === "held-snapshot") report.heldSnapshot = await measureHeldSnapshot(scaled(50_000), options.say);
    if (scenario === "memory") {
      const sizes = { openRuns: scaled(100_000), finishedTasks: scaled(1_000_000) };
      report.memory = await measureMemory(sizes, options.say);
    }
    if (scenario === "recovery") report.recovery = await measureRecovery(scaled(10_000));
    options.say(`${scenario} took ${Math.round((performance.now() - startedAt) / 1000)} s`);
  }
  return report;
}

/** What the doctor found after each scenario that was measured; nothing is a clean bill. */
function readDoctor(report: DegradedReport): [string, readonly string[]][] {
  return Object.entries(report).map(([scenario, figures]) => [scenario, figures.doctor]);
}

/** Whether every state was sound in the end: a fast mesh that lost something is no mesh. */
export const isSound = (report: DegradedReport): boolean =>
  readDoctor(report).every(([, findings]) => findings.length === 0);

export function describeDegraded(report: DegradedReport): string[] {
  const { claim, heldSnapshot, memory, recovery } = report;
  const lines: (readonly string[])[] = [];
  if (claim !== undefined) {
    const { blocked, future, ready } = claim.backlog;
    const around = `beside ${blocked} blocked, ${future} future and ${ready} ready tasks that nobody can run`;
    lines.push([
      `claim ${around}`,
      `${claim.ratio} × empty`,
      `${claim.emptyMicrosPerTask} → ${claim.fullMicrosPerTask} µs/task`,
    ]);
  }
  if (heldSnapshot !== undefined) {
    const { tasks, factor, freePerSecond, heldPerSecond } = heldSnapshot;
    const rates = `${freePerSecond.join(", ")} → ${heldPerSecond.join(", ")} tasks/s`;
    lines.push([`drain of ${tasks} under a held snapshot`, `${factor} × the time`, rates]);
  }
  if (memory !== undefined) {
    const { idleMiB, openRuns, openRunsPeakMiB, finishedTasks, finishedTasksPeakMiB } = memory;
    lines.push([`peak memory with ${openRuns} open runs`, `${openRunsPeakMiB} MiB`, `${idleMiB} MiB when idle`]);
    lines.push([`peak memory after ${finishedTasks} tasks`, `${finishedTasksPeakMiB} MiB`, ""]);
  }
  if (recovery !== undefined) {
    const { lostLeases, inFront, returnedMs, againLastMs, startedLastMs, overtookBy, tailMs } = recovery;
    lines.push([
      `${lostLeases} leases of a killed worker, ${inFront} older ready tasks of their priority in front`,
      `leased again ${againLastMs - returnedMs} ms after they came back`,
      `${againLastMs} ms after the kill, begun after ${startedLastMs}; the backlog's tail leased after ${tailMs}`,
    ]);
    lines.push(["tasks of that backlog leased while the lost ones waited", `${overtookBy}`, ""]);
  }
  for (const [scenario, findings] of readDoctor(report)) {
    lines.push([`doctor after ${scenario}`, findings.length === 0 ? "clean" : "NOT CLEAN", findings.join("; ")]);
  }
  return section("Degraded", ["what", "figure", "detail"], lines);
}
