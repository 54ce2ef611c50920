import type { DescMethod } from "@bufbuild/protobuf";
import type { Interceptor } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService, type StartRunsRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { type BackfillScheduleResponse, ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { principalKey } from "@runmesh/platform/principal";
import type { TokenBuckets } from "@runmesh/platform/token-buckets";
import type { Quotas } from "./quotas.ts";

/** What workers report of work in hand. Refusing it would lose leases and repeat the work, which costs more. */
const UNLIMITED: ReadonlySet<string> = new Set([
  "RenewLeases",
  "StartTasks",
  "CompleteTasks",
  "FailTasks",
  "ReleaseTasks",
  "Exchange",
  "RecordSteps",
  "SuspendTask",
]);

/** Whether a method is never refused for its rate. */
const isUnlimited = (method: DescMethod): boolean =>
  method.parent.typeName === LeaseService.typeName && UNLIMITED.has(method.name);

/** A burst holds so many seconds' worth. */
const BURST_SECONDS = 2;

/**
 * Server interceptor, after authentication: OVERLOADED with the time to wait beyond a principal's requests, or the
 * tenant's starts, per second. Buckets are named by the credential alone, never by what a caller says of itself.
 */
export function limitRequests({
  quotas,
  buckets,
}: {
  readonly quotas: Quotas;
  readonly buckets: TokenBuckets;
}): Interceptor {
  async function take(bucket: string, count: number, perSecond: number | undefined, what: string): Promise<void> {
    if (perSecond === undefined) return;
    const retryAfterMs = await buckets.take({ bucket, count, perSecond, burst: perSecond * BURST_SECONDS });
    if (retryAfterMs > 0)
      throw new MeshError("OVERLOADED", `more than ${perSecond} ${what} a second`, { retryAfterMs });
  }

  return (next) => async (request) => {
    const principal = request.contextValues.get(principalKey);
    if (principal === undefined || isUnlimited(request.method)) return next(request);
    const { tenantId, name } = principal;
    const rates = quotas.find(tenantId) ?? (await quotas.get(tenantId));
    await take(`requests:${tenantId}:${name}`, 1, rates.requestsPerSecond, "requests of this credential");
    const starts = countStarts(request.method, request.message);
    const takeStarts = (count: number) =>
      take(`starts:${tenantId}`, count, rates.startsPerSecond, "starts of this tenant");
    if (starts > 0) await takeStarts(starts);
    const response = await next(request);
    if (request.method !== ScheduleService.method.backfillSchedule || response.stream) return response;
    // How many it starts shows afterwards: what comes next waits for them.
    const { tickCount } = response.message as BackfillScheduleResponse;
    if (tickCount > 1) await takeStarts(tickCount - 1).catch(() => {});
    return response;
  };
}

const STARTS_ONE: ReadonlySet<DescMethod> = new Set([
  RunService.method.startRun,
  RunService.method.startChildRun,
  RunService.method.rerunRun,
  ScheduleService.method.triggerSchedule,
  ScheduleService.method.backfillSchedule,
]);

function countStarts(method: DescMethod, message: unknown): number {
  if (STARTS_ONE.has(method)) return 1;
  return method === RunService.method.startRuns ? (message as StartRunsRequest).runs.length : 0;
}
