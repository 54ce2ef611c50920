import { taskId as toTaskId } from "@runmesh/domain/ids";
import { EVENT_TYPES, RUN_STATES } from "@runmesh/domain/states";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { insertEvents, insertRunEvents } from "./outbox-write.ts";
import { insertReady } from "./places.ts";
import { deleteRunTimer, TIMER_KINDS } from "./run-timers.ts";
import { changeRun, lockRun } from "./runs.ts";
import { runMove } from "./settle-run.ts";

/** Moves a PENDING run whose start time has come to RUNNING. Answers the routes that have new ready tasks. */
export function beginRun(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  { tenantId, runId }: { tenantId: number; runId: bigint },
): Promise<ReadonlySet<number>> {
  return deps.db.transaction(async (tx) => {
    const run = await lockRun(tx, { tenantId, runId, skipLocked: true });
    if (run === undefined) return new Set<number>();
    await deleteRunTimer(tx, { tenantId, runId, kind: TIMER_KINDS.START });
    if (run.state !== RUN_STATES.PENDING) return new Set<number>();
    const loaded = await deps.definitions.get(tenantId, run.definition_id);
    const sequence = run.sequence + 1;
    const type = EVENT_TYPES.RUN_STARTED;
    const unchanged = {
      ended: 0,
      dead: 0,
      skipped: 0,
      cancelled: 0,
      failing: 0,
      isTerminal: false,
      failure: undefined,
    };
    await insertReady(tx, {
      tenantId,
      tasks: loaded.plan.roots.map((ordinal) => ({
        taskId: toTaskId(runId, ordinal),
        routeId: loaded.routeIds[ordinal]!,
        rank: loaded.ranks[ordinal]!,
        attempt: 0,
        failures: 0,
        losses: 0,
      })),
    });
    await changeRun(tx, { tenantId, runId, state: RUN_STATES.RUNNING, sequence, ...unchanged });
    await insertRunEvents(tx, { tenantId, runId, principal: "", events: [{ sequence, type, taskId: null }] });
    await insertEvents(tx, { tenantId, runId, definitionId: run.definition_id, events: [runMove(sequence, type)] });
    return new Set(loaded.plan.roots.map((ordinal) => loaded.routeIds[ordinal]!));
  });
}
