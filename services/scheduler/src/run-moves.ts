import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { MeshError } from "@runmesh/domain/errors";
import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import { digestOf } from "@runmesh/platform/digest";
import type { Principal } from "@runmesh/platform/principal";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { endRun } from "@runmesh/store/end-run";
import { type MoveOutcome, pauseRun, resumeRun } from "@runmesh/store/pause-run";
import { type ReopenOutcome, reopenRun } from "@runmesh/store/reopen-run";
import { findRun } from "@runmesh/store/runs";
import { writeWholeRun } from "./run-message.ts";
import { tellLost } from "./tell-lost.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
}

/** Moves of runs that people make, each with the hints that follow from it. */
export class RunMoves {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  async cancel({ tenantId, name, origin }: Principal, runId: bigint, comment: string): Promise<Run> {
    const outcome = await endRun(this.#deps, { tenantId, runId, as: "CANCELLED", principal: name, origin, comment });
    if (outcome.kind === "missing") throw missing(runId);
    if (outcome.state !== "CANCELLED") throw illegal(`run ${runId} has ended: it is ${outcome.state}`);
    tellLost(this.#deps.wakeups, outcome.lost);
    for (const route of outcome.wokenRoutes) this.#deps.wakeups.notify(`ready:${route}`);
    this.#deps.wakeups.notify(`ended:${runId}`);
    return this.#answer(tenantId, runId);
  }

  /** Cancels a run that a newcomer pushes out, if it has not ended meanwhile. */
  async cancelFor(tenantId: number, runId: bigint, principal: string): Promise<void> {
    const outcome = await endRun(this.#deps, { tenantId, runId, as: "CANCELLED", principal, origin: "" });
    if (outcome.kind !== "ended") return;
    tellLost(this.#deps.wakeups, outcome.lost);
    for (const route of outcome.wokenRoutes) this.#deps.wakeups.notify(`ready:${route}`);
    this.#deps.wakeups.notify("outbox");
    this.#deps.wakeups.notify(`run:${runId}`);
    this.#deps.wakeups.notify(`ended:${runId}`);
  }

  async pause({ tenantId, name, origin }: Principal, runId: bigint, requestId: string): Promise<Run> {
    const digest = digestRequest("run.pause", runId, requestId);
    const outcome = await pauseRun(this.#deps, { tenantId, runId, principal: name, origin, digest });
    return this.#finish(tenantId, runId, outcome, "paused");
  }

  async resume({ tenantId, name, origin }: Principal, runId: bigint, requestId: string): Promise<Run> {
    const digest = digestRequest("run.resume", runId, requestId);
    const outcome = await resumeRun(this.#deps, { tenantId, runId, principal: name, origin, digest });
    return this.#finish(tenantId, runId, outcome, "resumed");
  }

  /** `fresh` forgets what handlers recorded. */
  async retry(principal: Principal, runId: bigint, requestId: string, fresh: boolean): Promise<Run> {
    const { tenantId, name, origin } = principal;
    const digest = digestRequest("run.retry", runId, requestId);
    const asked = { tenantId, runId, principal: name, origin, digest, fresh };
    const outcome = await reopenRun(this.#deps, { ...asked, reopen: "all" });
    return this.#finish(tenantId, runId, outcome, "retried");
  }

  /** Replays one dead letter. Throws ILLEGAL_MOVE where it is none. */
  async replay(principal: Principal, taskId: bigint, requestId: string, fresh: boolean): Promise<void> {
    const { tenantId, name, origin } = principal;
    const runId = runIdOf(taskId);
    const digest = digestRequest("task.replay", taskId, requestId);
    const reopen = [ordinalOf(taskId)];
    const outcome = await reopenRun(this.#deps, { tenantId, runId, principal: name, origin, digest, reopen, fresh });
    if (outcome.kind === "missing") throw new MeshError("NOT_FOUND", `no task ${taskId}`);
    if (outcome.kind === "not_dead") throw illegal(`task ${taskId} is not DEAD`);
    await this.#finish(tenantId, runId, outcome, "replayed");
  }

  /**
   * Replays a dead letter; false where it is none any more, as another replay, or its run's, came first, or where the
   * request has replayed it before.
   */
  async replayIfDead(principal: Principal, taskId: bigint, requestId: string, fresh: boolean): Promise<boolean> {
    const { tenantId, name, origin } = principal;
    const runId = runIdOf(taskId);
    const reopen = [ordinalOf(taskId)];
    const digest = digestRequest("dead-letters.replay", taskId, requestId);
    const outcome = await reopenRun(this.#deps, { tenantId, runId, principal: name, origin, digest, reopen, fresh });
    if (outcome.kind === "refused" || outcome.kind === "not_dead") return false;
    if (outcome.kind === "done" && !outcome.moved) return false;
    await this.#finish(tenantId, runId, outcome, "replayed");
    return true;
  }

  async #finish(tenantId: number, runId: bigint, outcome: MoveOutcome | ReopenOutcome, verb: string): Promise<Run> {
    if (outcome.kind === "missing") throw missing(runId);
    if (outcome.kind === "refused") throw illegal(`run ${runId} is ${outcome.state} and cannot be ${verb}`);
    if (outcome.kind === "done") {
      for (const route of outcome.wokenRoutes) this.#deps.wakeups.notify(`ready:${route}`);
    }
    return this.#answer(tenantId, runId);
  }

  async #answer(tenantId: number, runId: bigint): Promise<Run> {
    this.#deps.wakeups.notify("outbox");
    this.#deps.wakeups.notify(`run:${runId}`);
    const row = await findRun(this.#deps.db, { tenantId, runId });
    if (row === undefined) throw missing(runId);
    return writeWholeRun(this.#deps, tenantId, row, false);
  }
}

const missing = (runId: bigint) => new MeshError("NOT_FOUND", `no run ${runId}`);
const illegal = (message: string) => new MeshError("ILLEGAL_MOVE", message);

/** A request id is of one move of one thing: the same id moves another one anew. */
export function digestRequest(move: string, id: bigint, requestId: string): string | undefined {
  return requestId === "" ? undefined : digestOf(`${move}:${id}:${requestId}`);
}
