import { isTerminalRun, type RunState, readRunState } from "@runmesh/domain/states";
import { admitTo } from "./admission.ts";
import { insertAudit } from "./audit.ts";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { lockRun } from "./lock-run.ts";
import { hasRequest, noteRequest } from "./requests.ts";
import { countSignals, findSignalWait, insertSignal, MAX_SIGNALS, takeSignals } from "./signals.ts";
import { answerWaits } from "./step-waits.ts";
import { STEP_OUTCOMES } from "./steps.ts";
import { wakeTask } from "./wake-tasks.ts";

export interface SendSignal {
  readonly tenantId: number;
  readonly runId: bigint;
  readonly name: string;
  /** JSON text; null where the signal carries none. */
  readonly value: Buffer | null;
  /** Of the request id: the same again stores nothing. */
  readonly digest: string | undefined;
  readonly principal: string;
  readonly origin?: string | undefined;
}

export type SignalOutcome =
  | { readonly kind: "missing" }
  | { readonly kind: "refused"; readonly state: RunState }
  | { readonly kind: "full" }
  | { readonly kind: "done"; readonly wokenRoutes: ReadonlySet<number> };

/**
 * Stores a signal, under the run's lock. Where a suspended task waits for one of its name, the oldest of that name is
 * its answer, and it is woken in the same transaction (I-12). Who suspends a task holds the run's lock too, so either
 * it finds the signal, or this finds the task.
 */
export function sendSignal(
  { db, definitions }: { readonly db: Db; readonly definitions: DefinitionCache },
  p: SendSignal,
): Promise<SignalOutcome> {
  return db.transaction(async (tx) => {
    const { tenantId, runId, name, value, digest } = p;
    const run = await lockRun(tx, { tenantId, runId });
    if (run === undefined) return { kind: "missing" };
    if (digest !== undefined && (await hasRequest(tx, { tenantId, digest }))) {
      return { kind: "done", wokenRoutes: new Set() };
    }
    const state = readRunState(run.state);
    if (isTerminalRun(state)) return { kind: "refused", state };
    if ((await countSignals(tx, { tenantId, runId })) >= MAX_SIGNALS) return { kind: "full" };
    if (digest !== undefined) await noteRequest(tx, { tenantId, digest });
    await insertSignal(tx, { tenantId, runId, name, value });
    const { principal, origin } = p;
    const target = `run/${runId}`;
    await insertAudit(tx, { tenantId, principal, origin, action: "signal.send", target, result: "done" });
    const waiting = await findSignalWait(tx, { tenantId, runId, name });
    if (waiting === undefined) return { kind: "done", wokenRoutes: new Set() };
    const [oldest] = await takeSignals(tx, { tenantId, runId, names: [name], counts: [1] });
    const { task_id: taskId, position } = waiting;
    const answer = { position, outcome: STEP_OUTCOMES.ANSWERED, value: oldest!.value };
    await answerWaits(tx, { tenantId, taskId, answers: [answer] });
    const placed = await wakeTask(tx, definitions, { tenantId, taskId });
    return { kind: "done", wokenRoutes: await admitTo(tx, { tenantId, placed }) };
  });
}
