import type { Mesh } from "@runmesh/client";
import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { followRun } from "./follow-run.ts";
import type { Progress } from "./progress.ts";
import { createTally, formatTally, takeEvent, takeSnapshot } from "./run-tally.ts";

/** Waits for a run's end with live progress, and answers the run. */
export async function waitForRun(mesh: Mesh, runId: bigint, progress: Progress, signal: AbortSignal): Promise<Run> {
  const tally = createTally();
  const startedAt = performance.now();
  const show = () => progress.update(formatTally(tally, performance.now() - startedAt));
  const ticking = setInterval(show, 200);
  try {
    return await followRun(mesh, {
      runId,
      signal,
      onSnapshot(run) {
        takeSnapshot(tally, run);
        show();
      },
      onEvent(event) {
        takeEvent(tally, event);
        show();
      },
    });
  } finally {
    clearInterval(ticking);
    progress.clear();
  }
}
