import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { runIdOf } from "@runmesh/domain/ids";
import { ATTEMPT_OUTCOMES } from "@runmesh/domain/states";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { explainLeases, type LeaseKey } from "@runmesh/store/leases";
import { lockHeldLeases } from "@runmesh/store/lock-leases";
import { listSteps, MAX_STEP_BYTES, recordSteps } from "@runmesh/store/steps";
import { toRepeat } from "@runmesh/store/store-errors";
import { suspendTask } from "@runmesh/store/suspend-task";
import { explainRefusal, stale } from "./lease-refusal.ts";
import { mismatch, readFrom, readNewSteps, readWaits, writeStep } from "./recorded-steps.ts";
import type { Session } from "./sessions.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
}

type Steps = Pick<ServiceImpl<typeof LeaseService>, "recordSteps" | "listSteps" | "suspendTask">;

/** Rows and bytes of a page of a record. */
const PAGE = 1_000;
const PAGE_BYTES = 3 * 1024 * 1024;

/** What handlers record and wait for, each call under the lease of its task (G1). */
export function createSteps(
  deps: Deps,
  getSession: (request: { sessionId: bigint; sessionToken: string }, context: HandlerContext) => Promise<Session>,
): Steps {
  const { db, wakeups } = deps;

  return {
    async recordSteps(request, context) {
      const session = await getSession(request, context);
      const steps = readNewSteps(request);
      const { tenantId, id: sessionId } = session;
      const { taskId, fence } = request;
      const recorded = db.transaction(async (tx) => {
        const [lease] = await lockHeldLeases(tx, { tenantId, sessionId, leases: [{ taskId, fence }] });
        if (lease === undefined) return false;
        const rows = await recordSteps(tx, { tenantId, taskId, steps });
        if (rows.some((row) => row.total_bytes > MAX_STEP_BYTES)) {
          throw new MeshError("TOO_LARGE", `the record of a task has at most ${MAX_STEP_BYTES} bytes of answers`);
        }
        return true;
      });
      const isHeld = await recorded.catch(rethrow);
      if (!isHeld) throw await explainRefusal(db, session, request);
      return {};
    },

    async listSteps(request, context) {
      const session = await getSession(request, context);
      const { tenantId } = session;
      const { taskId, fence } = request;
      const [row] = await explainLeases(db, { tenantId, sessionId: session.id, leases: [{ taskId, fence }] });
      if (row?.lease_fence !== fence) throw stale(request);
      const page = { tenantId, taskId, fromPosition: readFrom(request), limit: PAGE, maxBytes: PAGE_BYTES };
      const rows = await listSteps(db, page);
      const next = rows.length === 0 ? undefined : rows.at(-1)!.position + 1;
      const more =
        next === undefined ? [] : await listSteps(db, { ...page, fromPosition: next, limit: 1, maxBytes: 0 });
      return { steps: rows.map(writeStep), hasMore: more.length > 0 };
    },

    async suspendTask(request, context) {
      const session = await getSession(request, context);
      const { tenantId, id: sessionId } = session;
      const { taskId, fence } = request;
      const suspending = suspendTask(deps, { tenantId, sessionId, taskId, fence, ...readWaits(request) });
      const outcome = await suspending.catch(rethrow);
      if (outcome.kind === "mismatch") throw mismatch(outcome.position);
      if (outcome.kind === "answered") return { steps: outcome.steps.map(writeStep) };
      if (outcome.kind === "suspended") {
        for (const route of outcome.wokenRoutes) wakeups.notify(`ready:${route}`);
        wakeups.notify(`run:${runIdOf(taskId)}`);
        wakeups.notify("suspended");
        wakeups.notify("outbox");
      } else if (!(await wasSuspended(db, session, request))) {
        throw await explainRefusal(db, session, request);
      }
      session.drop({ taskId, fence });
      return { suspended: true };
    },
  };
}

function rethrow(error: unknown): never {
  throw toRepeat(error);
}

/** The same call came before, and its answer was lost. */
async function wasSuspended(db: Db, session: Session, lease: LeaseKey): Promise<boolean> {
  const { tenantId, id: sessionId } = session;
  const [row] = await explainLeases(db, { tenantId, sessionId, leases: [lease] });
  return row?.outcome === ATTEMPT_OUTCOMES.SUSPENDED;
}
