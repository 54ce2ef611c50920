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
    options.say(`${scenario} …`);
    if (scenario === "claim") {
      const size = scaled(100_000);
      report.claim = await measureClaim({ blocked: size, future: size, ready: size }, options.repetitions);
    }
    if (scenario === "held-snapshot") report.heldSnapshot = await measureHeldSnapshot(scaled(50_000));
    if (scenario === "memory") {
      report.memory = await measureMemory({ openRuns: scaled(100_000), finishedTasks: scaled(1_000_000) });
    }
    if (scenario === "recovery") report.recovery = await measureRecovery(scaled(10_000));
  }
  return report;
}

export function describeDegraded({ claim, heldSnapshot, memory, recovery }: DegradedReport): string[] {
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
    const { lostLeases, backlog, firstMs, lastMs, stillWaiting } = recovery;
    lines.push([
      `${lostLeases} leases of a killed worker, behind a backlog of ${backlog}`,
      `again after ${firstMs} to ${lastMs} ms`,
      `${stillWaiting} of the backlog still waited`,
    ]);
  }
  return section("Degraded", ["what", "figure", "detail"], lines);
}
