import type { Db } from "@runmesh/store/db";
import { listOlderRuns } from "@runmesh/store/run-slots";
import type { RunMoves } from "./run-moves.ts";

/** Runs that one newcomer cancels at most. */
const MAX_PUSHED_OUT = 1_000;

/** Cancels the runs that a newcomer of their limit pushes out: the newest that fit stay. */
export async function pushOutOlder(
  { db, moves }: { readonly db: Db; readonly moves: RunMoves },
  p: { tenantId: number; key: string; limit: number },
): Promise<void> {
  const { tenantId, key, limit: keep } = p;
  for (const { run_id: runId } of await listOlderRuns(db, { tenantId, key, keep, limit: MAX_PUSHED_OUT })) {
    await moves.cancelFor(tenantId, runId, "concurrency");
  }
}
