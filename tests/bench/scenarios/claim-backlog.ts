import { askDoctor } from "../ask-doctor.ts";
import type { Backlog } from "../backlog.ts";
import type { StatementTime } from "../statement-meter.ts";
import { median, rounded } from "../statistics.ts";
import { type MeshSubject, openMesh } from "../subjects/mesh-subject.ts";
import { within } from "../within.ts";

export interface ClaimFigures {
  readonly backlog: Backlog;
  readonly emptyMicrosPerTask: number;
  readonly fullMicrosPerTask: number;
  /** Target: at most 1.5. */
  readonly ratio: number;
  readonly doctor: readonly string[];
}

/** Ten times as long as it takes. */
const FILL_TIMEOUT_MS = 1_200_000;
const ROUND_TIMEOUT_MS = 120_000;
const LOAD = { count: 5_000, batch: 500, inFlight: 2, slots: 100, prefetch: 500 };

/** What claiming a task takes where much lies around that nobody can run, against where nothing does. */
export async function measureClaim(
  backlog: Backlog,
  repetitions: number,
  say: (line: string) => void,
): Promise<ClaimFigures> {
  const empty = await openMesh();
  const full = await openMesh();
  try {
    const startedAt = performance.now();
    await within(FILL_TIMEOUT_MS, "filling the backlog", full.client.call("fill", backlog));
    say(`  the backlog stands after ${Math.round((performance.now() - startedAt) / 1000)} s`);
    const times = new Map<MeshSubject, number[]>([empty, full].map((subject) => [subject, []]));
    for (let repetition = 0; repetition <= repetitions; repetition++) {
      for (const [subject, all] of times) {
        const micros = await claimMicros(subject);
        say(`  ${subject === full ? "beside the backlog" : "empty"}: ${micros.toFixed(1)} µs/task`);
        // The first is to warm up.
        if (repetition > 0) all.push(micros);
      }
    }
    const emptyMicrosPerTask = rounded(median(times.get(empty)!));
    const fullMicrosPerTask = rounded(median(times.get(full)!));
    const ratio = rounded(fullMicrosPerTask / emptyMicrosPerTask);
    const doctor = [...(await askDoctor(empty)), ...(await askDoctor(full))];
    return { backlog, emptyMicrosPerTask, fullMicrosPerTask, ratio, doctor };
  } finally {
    await empty.stop();
    await full.stop();
  }
}

/** Of the claim statement, as the server waits for it, for each task claimed. */
async function claimMicros(subject: MeshSubject): Promise<number> {
  await subject.cluster.settle();
  await within(ROUND_TIMEOUT_MS, `starting ${LOAD.count} runs`, subject.submit!(LOAD));
  await subject.server.call("statements");
  await subject.worker.call("start", { url: subject.url, slots: LOAD.slots, prefetch: LOAD.prefetch });
  await within(ROUND_TIMEOUT_MS, `claiming ${LOAD.count} tasks`, subject.worker.call("untilHandled", LOAD.count));
  const statements = await subject.server.call<StatementTime[]>("statements");
  await subject.worker.call("stop");
  const claims = statements.filter(({ name }) => name.startsWith("claim_ready"));
  return (claims.reduce((sum, { ms }) => sum + ms, 0) / LOAD.count) * 1_000;
}
