import { readPeakMemory } from "../cpu-meter.ts";
import { openMesh } from "../subjects/mesh-subject.ts";

export interface MemoryFigures {
  readonly idleMiB: number;
  readonly openRuns: number;
  readonly openRunsPeakMiB: number;
  readonly finishedTasks: number;
  readonly finishedTasksPeakMiB: number;
}

const WORKER = { slots: 100, prefetch: 500 };
/** Tasks that are open at a time while the history grows. */
const CHUNK = 50_000;

/** Most memory of the server's process, while so many runs are open, and after so many tasks have ended. */
export async function measureMemory(p: { openRuns: number; finishedTasks: number }): Promise<MemoryFigures> {
  const open = await openMesh();
  let idleMiB: number;
  let openRunsPeakMiB: number;
  try {
    idleMiB = peakMiB(open.server.pid);
    await open.submit!({ count: p.openRuns, batch: 1_000, inFlight: 2, ...WORKER });
    openRunsPeakMiB = peakMiB(open.server.pid);
  } finally {
    await open.stop();
  }

  const history = await openMesh();
  try {
    await history.worker.call("start", { url: history.url, ...WORKER });
    for (let ended = 0; ended < p.finishedTasks; ended += CHUNK) {
      const count = Math.min(CHUNK, p.finishedTasks - ended);
      await history.client.call("startTasks", count);
      await history.worker.call("untilHandled", ended + count);
    }
    await history.cluster.untilEmpty(["ready", "lease", "outbox"]);
    await history.worker.call("stop");
    return { ...p, idleMiB, openRunsPeakMiB, finishedTasksPeakMiB: peakMiB(history.server.pid) };
  } finally {
    await history.stop();
  }
}

const peakMiB = (pid: number): number => Math.round(readPeakMemory(pid) / 1024 ** 2);
