import type { Mesh } from "@runmesh/client";
import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { followRun } from "./follow-run.ts";
import { formatNotRunning } from "./not-running-view.ts";
import { NO_PROGRESS, type Progress } from "./progress.ts";
import { createTally, formatTally, takeEvent, takeSnapshot } from "./run-tally.ts";

const SHOW_EVERY_MS = 200;
/** A run that nothing was heard of for so long is asked why it does not run. */
const STILL_MS = 3_000;

/** Waits for a run's end with live progress, and answers the run. */
export async function waitForRun(
  mesh: Mesh,
  runId: bigint,
  progress: Progress,
  signal: AbortSignal,
  stillMs = STILL_MS,
): Promise<Run> {
  const tally = createTally();
  const startedAt = performance.now();
  let heardAt = startedAt;
  let why = "";
  let isOver = false;

  function show(): void {
    if (isOver) return;
    const line = formatTally(tally, performance.now() - startedAt);
    progress.update(why === "" ? line : `${line}  ${why}`);
  }

  function heard(): void {
    heardAt = performance.now();
    why = "";
    show();
  }

  /** Where it cannot be asked, the stream that is followed tells what is wrong. */
  async function ask(): Promise<void> {
    const askedAt = performance.now();
    heardAt = askedAt;
    const { run } = await mesh.runs.getRun({ runId, omitInput: true }, { signal }).catch(() => ({ run: undefined }));
    if (heardAt === askedAt) why = formatNotRunning(run?.notRunning);
    show();
  }

  function tick(): void {
    if (performance.now() - heardAt >= stillMs) void ask();
    else show();
  }

  const ticking = progress === NO_PROGRESS ? undefined : setInterval(tick, Math.min(SHOW_EVERY_MS, stillMs));
  try {
    return await followRun(mesh, {
      runId,
      signal,
      onSnapshot(run) {
        takeSnapshot(tally, run);
        heard();
      },
      onEvent(event) {
        takeEvent(tally, event);
        heard();
      },
    });
  } finally {
    isOver = true;
    clearInterval(ticking);
    progress.clear();
  }
}
