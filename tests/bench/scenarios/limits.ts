import { type ChainKind, LIMITED_STEPS } from "../limited-chains.ts";
import { percentile, rounded } from "../statistics.ts";
import type { Subject } from "../subjects/subject.ts";

export interface LimitFigures {
  /** Milliseconds of a step, its share of the run's start and end included. */
  readonly stepP50Ms: number;
  /** More than without a limit. Target: under 1 with one run at a time. */
  readonly addedP50Ms: number;
}

/** By how many runs there are at a time, and by kind of limit. */
export type LimitReport = Record<string, Record<string, LimitFigures>>;

const LOADS = [
  { runs: 40, inFlight: 1 },
  { runs: 400, inFlight: 100 },
];
const WARM_UP = { runs: 100, inFlight: 20 };

/** What a limit that never stands in the way adds to a step. */
export async function measureLimits(subject: Subject, slots: number, repetitions: number): Promise<LimitReport> {
  await subject.beginWork?.(slots);
  try {
    await subject.limits!(WARM_UP);
    const report: LimitReport = {};
    for (const load of LOADS) {
      const all = new Map<string, number[]>();
      for (let repetition = 0; repetition < repetitions; repetition++) {
        const times = await subject.limits!(load);
        for (const [kind, ms] of Object.entries(times)) all.set(kind, [...(all.get(kind) ?? []), ...ms]);
      }
      report[`${load.inFlight} at a time`] = summarize(all);
    }
    return report;
  } finally {
    await subject.endWork?.();
  }
}

function summarize(all: ReadonlyMap<string, readonly number[]>): Record<string, LimitFigures> {
  const free: ChainKind = "no limit";
  const perStep = (kind: string) => percentile(all.get(kind)!, 50) / LIMITED_STEPS;
  return Object.fromEntries(
    [...all.keys()].map((kind) => [
      kind,
      { stepP50Ms: rounded(perStep(kind)), addedP50Ms: rounded(perStep(kind) - perStep(free)) },
    ]),
  );
}
