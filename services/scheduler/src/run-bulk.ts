import type { RunFilter as FilterMessage } from "@runmesh/contracts/run/v1/run_pb";
import { MeshError } from "@runmesh/domain/errors";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { RUN_MOVES, RUN_STATES, type RunState } from "@runmesh/domain/states";
import { readPageSize } from "@runmesh/platform/page-size";
import type { Principal } from "@runmesh/platform/principal";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { type EndRunOutcome, endRun } from "@runmesh/store/end-run";
import { type MoveOutcome, pauseRun, resumeRun } from "@runmesh/store/pause-run";
import { type ReopenOutcome, reopenRun } from "@runmesh/store/reopen-run";
import { listRunPage } from "@runmesh/store/run-pages";
import { readComment } from "./cancel-comment.ts";
import { readRequestId } from "./request-id.ts";
import { readSomeFilter } from "./run-filter.ts";
import { digestRequest } from "./run-moves.ts";
import { tellLost } from "./tell-lost.ts";

/** A page of a move of many runs. */
export interface BulkRequest {
  readonly filter?: FilterMessage | undefined;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly requestId: string;
  /** Of a retry. */
  readonly fresh?: boolean;
  /** Of a cancel. */
  readonly comment?: string;
}

export type BulkMove = "cancel" | "pause" | "resume" | "retry";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
}

const MOVED_BY = { cancel: "cancelled", pause: "paused", resume: "resumed", retry: "retried" } as const;

/** States from which each move leads somewhere. */
const movableStates = (move: BulkMove): number[] =>
  (Object.keys(RUN_MOVES) as RunState[])
    .filter((state) => MOVED_BY[move] in RUN_MOVES[state])
    .map((state) => RUN_STATES[state]);

/** Runs moved at once: each is a transaction, and the mesh has other work. */
const AT_ONCE = 4;

/**
 * Moves a page of runs. Invariants:
 *   1. The walk goes down the ids, and the token is the last one looked at: it never comes back to a run, whatever the
 *      move makes of it, and never meets one that was started after the walk began.
 *   2. Each run is moved by itself, as the single move does it. One that another moved meanwhile is passed over.
 *   3. A page asked for again moves nothing twice: by the states, and where a run may have come to the same state again
 *      by the request id, which is noted for each run.
 */
export async function moveRuns(
  deps: Deps,
  principal: Principal,
  move: BulkMove,
  request: BulkRequest,
  signal: AbortSignal,
): Promise<{ movedCount: number; passedOverCount: number; nextPageToken: string }> {
  const limit = readPageSize(request.pageSize);
  const [token] = readPageToken(request.pageToken, "page_token", "id") ?? [];
  readRequestId(request.requestId);
  readComment(request.comment ?? "");
  const asked = readSomeFilter(request.filter);
  const movable = movableStates(move);
  const states = asked.states.length === 0 ? movable : asked.states.filter((state) => movable.includes(state));
  if (states.length === 0) return { movedCount: 0, passedOverCount: 0, nextPageToken: "" };
  const { rows, next: goesOn } = await listRunPage(deps.db, {
    tenantId: principal.tenantId,
    filter: { ...asked, states },
    after: token === undefined ? undefined : BigInt(token),
    limit,
    newestFirst: true,
  });
  const page = rows.map((row) => row.id);
  const nextPageToken = goesOn === undefined ? "" : writePageToken([String(goesOn)]);
  let movedCount = 0;
  let next = 0;

  async function work(): Promise<void> {
    while (next < page.length) {
      if (signal.aborted) throw new MeshError("CANCELLED", "the caller gave up: repeat from the same token");
      if (await moveOne(deps, principal, move, page[next++]!, request)) movedCount++;
    }
  }

  // All of them have ended before a failure of one is told: nothing goes on behind the caller's back.
  const outcomes = await Promise.allSettled(Array.from({ length: AT_ONCE }, work));
  for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  return { movedCount, passedOverCount: page.length - movedCount, nextPageToken };
}

/** Moves one run, with the hints that follow; false where it is gone, or stands so that it cannot be moved. */
async function moveOne(
  deps: Deps,
  { tenantId, name: principal, origin }: Principal,
  move: BulkMove,
  runId: bigint,
  { requestId, fresh = false, comment }: BulkRequest,
): Promise<boolean> {
  const asked = { tenantId, runId, principal, origin };
  const digest = digestRequest(`runs.${move}`, runId, requestId);
  const outcome = await moveInStore();
  if ((outcome.kind !== "done" && outcome.kind !== "ended") || !outcome.moved) return false;
  if (outcome.kind === "ended") {
    tellLost(deps.wakeups, outcome.lost);
    deps.wakeups.notify(`ended:${runId}`);
  }
  for (const route of outcome.wokenRoutes) deps.wakeups.notify(`ready:${route}`);
  deps.wakeups.notify("outbox");
  deps.wakeups.notify(`run:${runId}`);
  return true;

  function moveInStore(): Promise<EndRunOutcome | MoveOutcome | ReopenOutcome> {
    switch (move) {
      case "cancel":
        return endRun(deps, { ...asked, as: "CANCELLED", comment });
      case "pause":
        return pauseRun(deps, { ...asked, digest });
      case "resume":
        return resumeRun(deps, { ...asked, digest });
      case "retry":
        return reopenRun(deps, { ...asked, digest, reopen: "all", fresh });
    }
  }
}
