import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type GetRunRequest,
  ListRunsRequest_Order,
  type RunService,
  type StartRunRequest,
} from "@runmesh/contracts/run/v1/run_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { RUN_STATES } from "@runmesh/domain/states";
import { MAX_INT4 } from "@runmesh/platform/int4";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import { requestIdKey } from "@runmesh/platform/request-id";
import { toErrorDetail } from "@runmesh/platform/rpc-errors";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { readRunOutputs } from "@runmesh/store/run-output";
import { listRunPage } from "@runmesh/store/run-pages";
import { findRun, findRuns } from "@runmesh/store/runs";
import { toRepeat } from "@runmesh/store/store-errors";
import { readComment } from "./cancel-comment.ts";
import type { HistoryReader } from "./history-reader.ts";
import { explainRun } from "./not-running.ts";
import { writeNotRunning } from "./not-running-message.ts";
import type { OutboxGauge } from "./outbox-gauge.ts";
import { readRequestId } from "./request-id.ts";
import { rerunRun } from "./rerun-run.ts";
import { type BulkMove, type BulkRequest, moveRuns } from "./run-bulk.ts";
import { RunEnds } from "./run-ends.ts";
import { readFilter } from "./run-filter.ts";
import { type PointReads, writeRun, writeWholeRun, writeWholeRuns } from "./run-message.ts";
import { Signals } from "./signals.ts";
import { startChild } from "./start-child.ts";
import { StartMerger } from "./start-merger.ts";
import { type StartDeps, type StartedRun, startRequestedRuns } from "./start-runs.ts";
import { StartedRuns } from "./started-runs.ts";
import { watchRun } from "./watch-run.ts";
import { watchRuns } from "./watch-runs.ts";

const MAX_STARTS = 1_000;
const MAX_WAIT_MS = 60_000;
const MAX_AWAITED = 1_000;
/** Of a larger batch hardly anyone waits for each. */
const MAX_NOTED = 100;

export interface RunServiceDeps extends StartDeps {
  readonly history: HistoryReader;
  readonly gauge: OutboxGauge;
  readonly wakeups: Wakeups;
}

/** Moves that a later version serves are left out: they answer NOT_SERVED. */
export function createRunService(deps: RunServiceDeps): Partial<ServiceImpl<typeof RunService>> {
  const { db, wakeups, moves } = deps;
  const signals = new Signals(deps);
  const merger = new StartMerger(deps);
  const startedRuns = new StartedRuns(wakeups);
  const runEnds = new RunEnds(deps.hot, wakeups, startedRuns);

  async function start(requests: readonly StartRunRequest[], context: HandlerContext) {
    const { tenantId, name } = getPrincipal(context);
    await deps.gauge.refuseWhenFull();
    const traceparent = readTraceparent(context);
    const started = await startRequestedRuns(deps, tenantId, name, requests, traceparent);
    noteStarted(tenantId, started);
    wakeRoots(wakeups, started);
    return started;
  }

  /** Single starts that arrive at once go together; one with a graph of its own goes alone, since it is checked first. */
  async function startOne(request: StartRunRequest, context: HandlerContext): Promise<StartedRun> {
    if (request.definition !== undefined) {
      const [started] = await start([request], context);
      if (started instanceof MeshError) throw started;
      return started!;
    }
    const { tenantId, name: principal } = getPrincipal(context);
    await deps.gauge.refuseWhenFull();
    const started = await merger.start({ tenantId, principal, traceparent: readTraceparent(context) }, request);
    noteStarted(tenantId, [started]);
    wakeRoots(wakeups, [started]);
    return started;
  }

  function noteStarted(tenantId: number, started: readonly (StartedRun | MeshError)[]): void {
    if (started.length > MAX_NOTED) return;
    for (const run of started) {
      if (!(run instanceof MeshError) && run.created) startedRuns.note(tenantId, run.runId, run.loaded);
    }
  }

  /** Outputs of runs whose definitions are known, as they are if the run SUCCEEDED. */
  async function readKnownOutputs(point: PointReads, tenantId: number, runIds: readonly bigint[]) {
    const known = runIds.flatMap((runId) => {
      const started = startedRuns.find(tenantId, runId);
      return started === undefined ? [] : [{ runId, loaded: started.loaded }];
    });
    const outputs = known.length === 0 ? [] : await readRunOutputs(point.db, { tenantId, runs: known });
    return new Map(known.map(({ runId }, i) => [runId, outputs[i]!]));
  }

  /** The run, once it has ended or the wait is over. */
  async function awaitRow(tenantId: number, request: GetRunRequest, context: HandlerContext) {
    const { runId, waitMs } = request;
    if (waitMs === 0) return getRow(tenantId, runId);
    if (waitMs > MAX_WAIT_MS) throw invalidField("wait_ms", `a call waits at most ${MAX_WAIT_MS} ms`);
    await waitForEnds(tenantId, [runId], waitMs, context);
    return getRow(tenantId, runId);
  }

  async function waitForEnds(tenantId: number, runIds: readonly bigint[], waitMs: number, context: HandlerContext) {
    // A wait of no time would be over before the first look is.
    if (waitMs === 0) return runEnds.list(tenantId, runIds);
    const ends = runEnds.listen(tenantId, runIds);
    try {
      return await ends.wait(waitMs, context.signal);
    } finally {
      ends.close();
    }
  }

  async function getRow(tenantId: number, runId: bigint) {
    const row = await findRun(db, { tenantId, runId });
    if (row === undefined) throw new MeshError("NOT_FOUND", `no run ${runId}`);
    return row;
  }

  const move = (name: BulkMove) => (request: BulkRequest, context: HandlerContext) =>
    moveRuns(deps, getPrincipal(context), name, request, context.signal);

  return {
    async startRun(request, context) {
      const started = await startOne(request, context);
      return { runId: started.runId, created: started.created, workflowVersion: started.version };
    },

    async startRuns(request, context) {
      if (request.runs.length === 0 || request.runs.length > MAX_STARTS) {
        throw invalidField("runs", `a batch has 1 to ${MAX_STARTS} runs`);
      }
      const started = await start(request.runs, context);
      const requestId = context.values.get(requestIdKey);
      return {
        results: started.map((item) => ({
          result:
            item instanceof MeshError
              ? { case: "error" as const, value: toErrorDetail(item, requestId) }
              : {
                  case: "started" as const,
                  value: { runId: item.runId, created: item.created, workflowVersion: item.version },
                },
        })),
      };
    },

    async getRun(request, context) {
      const { tenantId } = getPrincipal(context);
      const row = await awaitRow(tenantId, request, context);
      const run = await writeWholeRun(deps, tenantId, row, !request.omitInput);
      if (row.state > RUN_STATES.PAUSED) return { run };
      const found = await explainRun(db, tenantId, row, await deps.definitions.get(tenantId, row.definition_id));
      if (found !== undefined) run.notRunning = writeNotRunning(found.why, found.taskKey);
      return { run };
    },

    async awaitRuns(request, context) {
      const { tenantId } = getPrincipal(context);
      const runIds = [...new Set(request.runIds)];
      if (runIds.length === 0 || runIds.length > MAX_AWAITED) {
        throw invalidField("run_ids", `a call waits for 1 to ${MAX_AWAITED} runs`);
      }
      if (request.waitMs > MAX_WAIT_MS) throw invalidField("wait_ms", `a call waits at most ${MAX_WAIT_MS} ms`);
      const ended = await waitForEnds(tenantId, runIds, request.waitMs, context);
      if (ended.length === 0) return {};
      // Looked up by key, on connections whose plans are fixed: planning would cost more than the look.
      const point = { db: deps.hot, definitions: deps.definitions };
      const [rows, outputs] = await Promise.all([
        findRuns(point.db, { tenantId, runIds: ended }),
        readKnownOutputs(point, tenantId, ended),
      ]);
      const found = new Set(rows.map((row) => row.id));
      const over = rows.filter((row) => row.state > RUN_STATES.PAUSED);
      return {
        runs: await writeWholeRuns(point, tenantId, over, outputs),
        missingRunIds: ended.filter((runId) => !found.has(runId)),
      };
    },

    async listRuns(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [token] = readPageToken(request.pageToken, "page_token", "id") ?? [];
      const { rows, next } = await listRunPage(db, {
        tenantId,
        filter: readFilter(request.filter),
        after: token === undefined ? undefined : BigInt(token),
        limit,
        newestFirst: request.order !== ListRunsRequest_Order.OLDEST_FIRST,
      });
      return {
        runs: rows.map((row) => writeRun(row)),
        nextPageToken: next === undefined ? "" : writePageToken([String(next)]),
      };
    },

    watchRun(request, context) {
      const { tenantId } = getPrincipal(context);
      const { runId } = request;
      return watchRun(deps, { tenantId, runId, afterSequence: readSequence(request.afterSequence) }, context.signal);
    },

    watchRuns: (request, context) => watchRuns(deps, getPrincipal(context).tenantId, request, context.signal),

    async listEvents(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const afterSequence = readSequence(request.afterSequence);
      await getRow(tenantId, request.runId);
      const events = await deps.history.list({ tenantId, runId: request.runId, afterSequence, limit: limit + 1 });
      return { events: events.slice(0, limit), hasMore: events.length > limit };
    },

    async cancelRun(request, context) {
      return { run: await moves.cancel(getPrincipal(context), request.runId, readComment(request.comment)) };
    },

    async pauseRun(request, context) {
      return { run: await moves.pause(getPrincipal(context), request.runId, readRequestId(request.requestId)) };
    },

    async resumeRun(request, context) {
      return { run: await moves.resume(getPrincipal(context), request.runId, readRequestId(request.requestId)) };
    },

    async sendSignal(request, context) {
      await signals.send(getPrincipal(context), request);
      return {};
    },

    async startChildRun(request, context) {
      await deps.gauge.refuseWhenFull();
      const { tenantId } = getPrincipal(context);
      const traceparent = readTraceparent(context);
      const starting = startChild(deps, { tenantId, request, traceparent });
      const { started, ...child } = await starting.catch((error: unknown) => {
        throw toRepeat(error);
      });
      if (started !== undefined) wakeRoots(wakeups, [started]);
      return { runId: child.runId, created: child.created, workflowVersion: child.version };
    },

    async retryRun(request, context) {
      return { run: await moves.retry(getPrincipal(context), request.runId, request.requestId, request.fresh) };
    },

    cancelRuns: move("cancel"),
    pauseRuns: move("pause"),
    resumeRuns: move("resume"),
    retryRuns: move("retry"),

    async rerunRun(request, context) {
      await deps.gauge.refuseWhenFull();
      const started = await rerunRun(deps, getPrincipal(context), request, readTraceparent(context));
      wakeRoots(wakeups, [started]);
      return { runId: started.runId, created: started.created, workflowVersion: started.version };
    },
  };
}

function readSequence(afterSequence: bigint): number {
  if (afterSequence >= 0n && afterSequence <= BigInt(MAX_INT4)) return Number(afterSequence);
  throw invalidField("after_sequence", "must be the sequence of an event, or 0");
}

/** Hints to waiting workers and to the relay. */
function wakeRoots(wakeups: Wakeups, started: readonly (StartedRun | MeshError)[]): void {
  const routes = new Set<number>();
  let created = false;
  for (const item of started) {
    if (item instanceof MeshError || !item.created) continue;
    created = true;
    for (const ordinal of item.loaded.plan.roots) routes.add(item.loaded.routeIds[ordinal]!);
  }
  if (!created) return;
  for (const route of routes) wakeups.notify(`ready:${route}`);
  wakeups.notify("outbox");
}

const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

function readTraceparent(context: HandlerContext): string | undefined {
  const header = context.requestHeader.get("traceparent");
  return header !== null && TRACEPARENT.test(header) ? header : undefined;
}
