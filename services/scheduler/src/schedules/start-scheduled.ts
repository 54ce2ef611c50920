import { create } from "@bufbuild/protobuf";
import { type StartRunRequest, StartRunRequestSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { digestOf } from "@runmesh/platform/digest";
import type { Db } from "@runmesh/store/db";
import type { StartedTick } from "@runmesh/store/schedule-ticks";
import type { ScheduleRow } from "@runmesh/store/schedules";
import type { DeferredCancels } from "../deferred-cancels.ts";
import { Registry } from "../registry.ts";
import { type StartedRun, startRequestedRuns } from "../start-runs.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";

/** Labels by which people find the runs of a schedule. Its own labels leave room for them. */
export const SCHEDULE_LABEL = "runmesh.schedule";
export const TICK_LABEL = "runmesh.tick";

export interface StartedTicks {
  readonly started: readonly StartedTick[];
  /** They had a run that the schedule no longer knew of: its key outlives the tick's row. */
  readonly known: readonly number[];
  readonly refused: readonly { readonly tick: number; readonly error: MeshError }[];
  /** Routes with new ready tasks. */
  readonly routeIds: ReadonlySet<number>;
}

/** The caller's transaction, which holds the schedule's lock, and the cancels that are due after it. */
export interface TickScope {
  readonly tx: Db;
  readonly pushedOut: DeferredCancels;
}

/**
 * Starts the runs of ticks in the caller's transaction. Their keys hold schedule and tick, so a tick is one run even where
 * its row is gone.
 */
export async function startTicks(
  deps: ScheduleDeps,
  scope: TickScope,
  schedule: ScheduleRow,
  ticks: readonly number[],
): Promise<StartedTicks> {
  const requests = ticks.map((tick) => {
    const time = new Date(tick).toISOString();
    const requestId = digestOf(`schedule:${schedule.name}:${time}`);
    return requestOf(schedule, requestId, { [TICK_LABEL]: time.replace(".000Z", "Z") });
  });
  const started: StartedTick[] = [];
  const known: number[] = [];
  const refused: { tick: number; error: MeshError }[] = [];
  const routeIds = new Set<number>();
  for (const [i, result] of (await start(deps, scope, schedule, requests)).entries()) {
    const tick = ticks[i]!;
    if (!(result instanceof MeshError) && result.created) {
      for (const id of rootRoutes(result)) routeIds.add(id);
      started.push({ tick, runId: result.runId });
    } else if (!(result instanceof MeshError) || result.reason === "IDEMPOTENCY_MISMATCH") known.push(tick);
    else refused.push({ tick, error: result });
  }
  return { started, known, refused, routeIds };
}

/** Starts a run apart from the ticks. A request id that came before answers its run. */
export async function startTriggered(
  deps: ScheduleDeps,
  scope: TickScope,
  schedule: ScheduleRow,
  requestId: string,
  principal: string,
): Promise<StartedRun> {
  const [result] = await start(deps, scope, schedule, [requestOf(schedule, requestId, {})], principal);
  if (result instanceof MeshError) throw result;
  return result!;
}

/** Ordinary starts, with everything on the one connection of the transaction. */
function start(
  deps: ScheduleDeps,
  { tx, pushedOut }: TickScope,
  schedule: ScheduleRow,
  requests: readonly StartRunRequest[],
  principal = `schedule/${schedule.name}`,
): Promise<(StartedRun | MeshError)[]> {
  if (requests.length === 0) return Promise.resolve([]);
  const scoped = { ...deps, db: tx, hot: tx, registry: new Registry(tx), moves: pushedOut };
  return startRequestedRuns(scoped, schedule.tenant_id, principal, requests, undefined);
}

function requestOf(schedule: ScheduleRow, requestId: string, labels: Record<string, string>): StartRunRequest {
  return create(StartRunRequestSchema, {
    workflow: schedule.workflow,
    version: schedule.version,
    requestId,
    labels: { ...schedule.labels, [SCHEDULE_LABEL]: schedule.name, ...labels },
    ...(schedule.input !== null && { inputPayload: { case: "inputJson" as const, value: schedule.input } }),
  });
}

export const rootRoutes = ({ loaded }: StartedRun): number[] =>
  loaded.plan.roots.map((ordinal) => loaded.routeIds[ordinal]!);
