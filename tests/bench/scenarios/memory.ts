import { askDoctor } from "../ask-doctor.ts";
import { readPeakMemory } from "../cpu-meter.ts";
import { openMesh } from "../subjects/mesh-subject.ts";
import { within } from "../within.ts";

export interface MemoryFigures {
  readonly idleMiB: number;
  readonly openRuns: number;
  readonly openRunsPeakMiB: number;
  readonly finishedTasks: number;
  readonly finishedTasksPeakMiB: number;
  readonly doctor: readonly string[];
}

type Say = (line: string) => void;

const WORKER = { slots: 100, prefetch: 500 };
/** Tasks that are open at a time while the history grows. */
const CHUNK = 50_000;
/** Of the open runs so many are worked off, as a server that only stores them holds nothing. */
const WORKED_SHARE = 0.1;
/** Ten times as long as it takes. */
const OPEN_TIMEOUT_MS = 600_000;
/** At a third of the usual speed. */
const HISTORY_TIMEOUT_MS = 1_200_000;

/** Most memory of the server's process, while so many runs are open, and after so many tasks have ended. */
export async function measureMemory(
  { openRuns, finishedTasks }: { openRuns: number; finishedTasks: number },
  say: Say,
): Promise<MemoryFigures> {
  const open = await measureOpenRuns(openRuns, say);
  const history = await measureHistory(finishedTasks, say);
  return {
    idleMiB: open.idleMiB,
    openRuns,
    openRunsPeakMiB: open.peakMiB,
    finishedTasks,
    finishedTasksPeakMiB: history.peakMiB,
    doctor: [...open.doctor, ...history.doctor],
  };
}

async function measureOpenRuns(count: number, say: Say) {
  const mesh = await openMesh();
  try {
    const idleMiB = peakMiB(mesh.server.pid);
    const submitted = mesh.submit!({ count, batch: 1_000, inFlight: 2, ...WORKER });
    await within(OPEN_TIMEOUT_MS, `starting ${count} runs`, submitted);
    say(`  ${count} runs are open, the server's peak is ${peakMiB(mesh.server.pid)} MiB`);
    const worked = Math.ceil(count * WORKED_SHARE);
    await mesh.worker.call("start", { url: mesh.url, ...WORKER });
    await within(OPEN_TIMEOUT_MS, `working off ${worked} of them`, mesh.worker.call("untilHandled", worked));
    await mesh.worker.call("stop");
    const figures = { idleMiB, peakMiB: peakMiB(mesh.server.pid) };
    return { ...figures, doctor: await askDoctor(mesh) };
  } finally {
    await mesh.stop();
  }
}

async function measureHistory(count: number, say: Say) {
  const mesh = await openMesh();
  try {
    await mesh.worker.call("start", { url: mesh.url, ...WORKER });
    const startedAt = performance.now();
    for (let ended = 0; ended < count; ) {
      const target = Math.min(count, ended + CHUNK);
      const left = HISTORY_TIMEOUT_MS - (performance.now() - startedAt);
      await within(left, `ending ${count} tasks, ${ended} so far`, endTasks(target - ended, target));
      ended = target;
      const perSecond = Math.round((ended * 1000) / (performance.now() - startedAt));
      say(`  ${ended} of ${count} tasks ended, ${perSecond}/s, the server's peak is ${peakMiB(mesh.server.pid)} MiB`);
    }
    await mesh.cluster.untilEmpty(["ready", "lease", "outbox"]);
    await mesh.worker.call("stop");
    const figures = { peakMiB: peakMiB(mesh.server.pid) };
    say("  asking the doctor …");
    return { ...figures, doctor: await askDoctor(mesh) };
  } finally {
    await mesh.stop();
  }

  async function endTasks(more: number, target: number): Promise<void> {
    await mesh.client.call("startTasks", more);
    await mesh.worker.call("untilHandled", target);
  }
}

const peakMiB = (pid: number): number => Math.round(readPeakMemory(pid) / 1024 ** 2);
