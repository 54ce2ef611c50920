import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { CompletedTask, FailedTask, ReleasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { type LeaseService, LostLease_Cause } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { digestOf } from "@runmesh/platform/digest";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import { requestIdKey } from "@runmesh/platform/request-id";
import { toErrorDetail } from "@runmesh/platform/rpc-errors";
import type { LeaseKey } from "@runmesh/store/leases";
import { listSessions } from "@runmesh/store/sessions";
import { toRepeat } from "@runmesh/store/store-errors";
import { type AcquireDeps, acquire } from "./acquire.ts";
import { type AttachDeps, attach } from "./attach.ts";
import { getParams } from "./params.ts";
import { type RenewalsOptions, renew } from "./renewals.ts";
import { readCompleted, readFailed, readHeld } from "./report-message.ts";
import type { ItemOutcome } from "./reports.ts";
import type { Session } from "./sessions.ts";
import { startTasks } from "./start-tasks.ts";
import { createSteps } from "./steps.ts";

const MAX_ITEMS = 1_000;
const MAX_HELD = 10_000;
const MAX_WAIT_MS = 60_000;

export type LeaseServiceDeps = AcquireDeps & AttachDeps & RenewalsOptions;

export function createLeaseService(deps: LeaseServiceDeps): ServiceImpl<typeof LeaseService> {
  const { reports, sessions } = deps;

  const getSession = (request: { sessionId: bigint; sessionToken: string }, context: HandlerContext) =>
    sessions.get(getPrincipal(context).tenantId, request.sessionId, request.sessionToken);

  const complete = (session: Session, tasks: readonly CompletedTask[], field: string) =>
    report(tasks, field, readCompleted, (items) => reports.complete(session, items));

  const fail = (session: Session, tasks: readonly FailedTask[], field: string) =>
    report(tasks, field, readFailed, (items) => reports.fail(session, items));

  const release = (session: Session, tasks: readonly ReleasedTask[], field: string) =>
    report(
      tasks,
      field,
      (task) => task,
      (items) => reports.release(session, items),
    );

  return {
    attach: (request, context) => attach(deps, getPrincipal(context).tenantId, request, context.signal),

    async acquireTasks(request, context) {
      const session = await getSession(request, context);
      return { tasks: await acquire(deps, readAcquire(session, request, context, true)) };
    },

    async renewLeases(request, context) {
      if (request.leases.length > MAX_HELD) throw invalidField("leases", `a worker holds at most ${MAX_HELD}`);
      const session = await getSession(request, context);
      const named = request.leases.map((lease, i) => readHeld(lease, `leases[${i}]`));
      if (request.leaving) session.leaves = true;
      const renewing = renew(deps, session, named, request.acquiring);
      const { lost, expiresAt } = await renewing.catch((error: unknown) => {
        throw toRepeat(error);
      });
      return {
        lost: lost.map(({ taskId, fence }) => ({ taskId, fence, cause: LostLease_Cause.EXPIRED })),
        ...(expiresAt !== undefined && { expireTime: timestampFromDate(expiresAt) }),
      };
    },

    async startTasks(request, context) {
      const session = await getSession(request, context);
      const start = (items: readonly LeaseKey[]) => startTasks(deps.hot, session, items);
      return { results: write(await report(request.tasks, "tasks", (task) => task, start), context) };
    },

    async completeTasks(request, context) {
      const session = await getSession(request, context);
      return { results: write(await complete(session, request.tasks, "tasks"), context) };
    },

    async failTasks(request, context) {
      const session = await getSession(request, context);
      return { results: write(await fail(session, request.tasks, "tasks"), context) };
    },

    async releaseTasks(request, context) {
      const session = await getSession(request, context);
      return { results: write(await release(session, request.tasks, "tasks"), context) };
    },

    async exchange(request, context) {
      const session = await getSession(request, context);
      const [completed, failed, released] = await Promise.all([
        complete(session, request.completed, "completed"),
        fail(session, request.failed, "failed"),
        release(session, request.released, "released"),
      ]);
      // Whoever reports wants to hear what became of it: only a call without reports waits for work.
      const hasReports = completed.length + failed.length + released.length > 0;
      const wanted = { ...request, waitMs: hasReports ? 0 : request.waitMs };
      const tasks = request.max === 0 ? [] : await acquire(deps, readAcquire(session, wanted, context, false));
      return {
        completed: write(completed, context),
        failed: write(failed, context),
        released: write(released, context),
        tasks,
      };
    },

    async getTaskParams(request, context) {
      const session = await getSession(request, context);
      const { taskId, fence } = request;
      return { paramsJson: await getParams(deps, session, { taskId, fence }) };
    },

    ...createSteps(deps, getSession),

    async listWorkers(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [before = "9223372036854775807"] = readPageToken(request.pageToken, "page_token", "id") ?? [];
      const rows = await listSessions(deps.db, { tenantId, beforeId: BigInt(before), limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        workers: page.map((row) => ({
          sessionId: row.id,
          name: row.name,
          handlers: row.handlers,
          queues: row.queues,
          capabilities: row.capabilities,
          slots: row.slots,
          leasedCount: row.leased_count,
          createTime: timestampFromDate(row.created_at),
          seenTime: timestampFromDate(row.seen_at),
          connected: row.is_recent,
        })),
        nextPageToken: rows.length > limit ? writePageToken([String(page.at(-1)!.id)]) : "",
      };
    },
  };
}

/** Reads each item, lets the readable ones through, and answers all of them in order. */
async function report<Message, Item extends LeaseKey>(
  messages: readonly Message[],
  field: string,
  read: (message: Message, field: string) => Item | MeshError,
  end: (items: readonly Item[]) => Promise<ItemOutcome[]>,
): Promise<ItemOutcome[]> {
  if (messages.length === 0) return [];
  if (messages.length > MAX_ITEMS) throw invalidField(field, `a call has at most ${MAX_ITEMS} items`, "TOO_LARGE");
  const items = messages.map((message, i) => read(message, `${field}[${i}]`));
  const readable = items.filter((item): item is Item => !(item instanceof MeshError));
  const outcomes = readable.length === 0 ? [] : await end(readable);
  let next = 0;
  return items.map((item) => (item instanceof MeshError ? item : outcomes[next++]!));
}

const write = (outcomes: readonly ItemOutcome[], context: HandlerContext) =>
  outcomes.map((outcome) =>
    outcome === "accepted" ? {} : { error: toErrorDetail(outcome, context.values.get(requestIdKey)) },
  );

function readAcquire(
  session: Session,
  request: { max: number; waitMs: number; requestId: string },
  context: HandlerContext,
  required: boolean,
) {
  if (request.max > MAX_ITEMS || (required && request.max === 0)) throw invalidField("max", `1 to ${MAX_ITEMS}`);
  if (request.waitMs > MAX_WAIT_MS) throw invalidField("wait_ms", `at most ${MAX_WAIT_MS}`);
  return {
    session,
    max: request.max,
    waitMs: request.waitMs,
    acquireId: request.requestId === "" ? undefined : digestOf(request.requestId),
    signal: context.signal,
  };
}
