import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import type { AttachRequest, AttachResponseSchema } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { LostLease_Cause } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { invalidField } from "@runmesh/domain/errors";
import { exceedsUtf8, findCapabilityFault, findNameFault, findTextFault } from "@runmesh/domain/names";
import { isCallerLeft } from "@runmesh/platform/gone-caller";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listSessionLeases } from "@runmesh/store/leases";
import { touchSession } from "@runmesh/store/sessions";
import { Hint } from "./hint.ts";
import type { LinkWatch, StreamEnd } from "./link-watch.ts";
import type { Announcement, Session, Sessions } from "./sessions.ts";

type Message = MessageInitShape<typeof AttachResponseSchema>;

/** Proxies cut what is idle for a minute; a worker that misses beats attaches anew. */
const BEAT_MS = 10_000;
const DEFAULT_LEASE_MS = 15_000;

export interface AttachDeps {
  readonly db: Db;
  readonly sessions: Sessions;
  readonly wakeups: Wakeups;
  readonly links: LinkWatch;
  /** Aborted when this process goes down: workers attach to another. */
  readonly draining: AbortSignal;
}

/** A worker's session: what it lost is told at once, and a beat says that the link lives. */
export async function* attach(
  deps: AttachDeps,
  tenantId: number,
  request: AttachRequest,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const announced = readAnnouncement(request);
  const session =
    request.sessionId === 0n
      ? await deps.sessions.open(tenantId, announced)
      : await deps.sessions.resume(tenantId, request.sessionId, request.sessionToken, announced);
  deps.links.opened(session);
  let failedHere = false;
  try {
    yield* serve(deps, session, signal);
  } catch (error) {
    failedHere = !signal.aborted && !isCallerLeft(error);
    throw error;
  } finally {
    // A link that this side ended, as when it stops or the database is out of reach, is none that broke.
    const endedHere = deps.draining.aborted || failedHere || isServerStop(signal.reason);
    deps.links.closed(session, endedHere ? "here" : endOf(session));
  }
}

/** A worker that stops says so before it goes. */
const endOf = (session: Session): StreamEnd => (session.leaves ? "left" : "broken");

/** The server that the stream came through stops: its workers find another, or this one when it is back. */
const isServerStop = (reason: unknown): boolean => reason instanceof ConnectError && reason.code === Code.Unavailable;

async function* serve(deps: AttachDeps, session: Session, signal: AbortSignal): AsyncGenerator<Message> {
  yield { message: { case: "attached", value: writeAttached(session) } };
  const over = AbortSignal.any([signal, deps.draining]);
  const losses = new Hint(deps.wakeups, `lost:${session.id}`);
  let beatAt = performance.now() + BEAT_MS;
  try {
    while (!over.aborted) {
      if (await losses.wait(Math.max(1, beatAt - performance.now()), over)) {
        const lost = await findLost(deps.db, session);
        if (lost.length > 0) yield { message: { case: "lost", value: { leases: lost } } };
      } else if (!over.aborted) {
        beatAt = performance.now() + BEAT_MS;
        // An open stream is a sign of life, also of a worker that holds nothing and so renews nothing.
        await touchSession(deps.db, { tenantId: session.tenantId, sessionId: session.id });
        yield { message: { case: "beat", value: { time: timestampNow() } } };
      }
    }
  } finally {
    losses.close();
  }
  if (!signal.aborted) yield { message: { case: "draining", value: {} } };
}

/** What this process handed out and the database no longer has. */
async function findLost(db: Db, session: Session) {
  const handedOut = [...session.held];
  const rows = await listSessionLeases(db, { tenantId: session.tenantId, sessionId: session.id, youngMs: 0 });
  const alive = new Map(rows.map((row) => [row.task_id, row.fence]));
  const lost = [];
  for (const [taskId, { fence }] of handedOut) {
    if (alive.get(taskId) === fence || session.held.get(taskId)?.fence !== fence) continue;
    session.held.delete(taskId);
    lost.push({ taskId, fence, cause: LostLease_Cause.RUN_ENDED });
  }
  return lost;
}

const writeAttached = (session: Session) => ({
  sessionId: session.id,
  sessionToken: session.token,
  epoch: BigInt(session.epoch),
  leaseMs: session.leaseMs,
  renewMs: Math.floor(session.leaseMs / 3),
});

function readAnnouncement(request: AttachRequest): Announcement {
  const name = request.name === "" ? "worker" : request.name;
  const fault = findTextFault(name) ?? (exceedsUtf8(name, 128) ? "has at most 128 bytes" : undefined);
  if (fault !== undefined) throw invalidField("name", fault);
  if (request.handlers.length === 0) throw invalidField("handlers", "a worker announces at least one");
  if (request.slots > 10_000) throw invalidField("slots", "a worker has at most 10,000");
  if (request.leaseMs !== 0 && (request.leaseMs < 1_000 || request.leaseMs > 600_000)) {
    throw invalidField("lease_ms", "a lease takes 1,000 to 600,000 ms");
  }
  return {
    name,
    handlers: readNames(request.handlers, "handlers", 1_000, findNameFault),
    queues: request.queues.length === 0 ? ["default"] : readNames(request.queues, "queues", 100, findNameFault),
    capabilities: readNames(request.capabilities, "capabilities", 100, findCapabilityFault),
    slots: request.slots === 0 ? 10 : request.slots,
    leaseMs: request.leaseMs === 0 ? DEFAULT_LEASE_MS : request.leaseMs,
  };
}

function readNames(
  names: readonly string[],
  field: string,
  most: number,
  findFault: (name: string) => string | undefined,
): string[] {
  if (names.length > most) throw invalidField(field, `a worker announces at most ${most}`);
  for (const [i, name] of names.entries()) {
    const fault = findFault(name);
    if (fault !== undefined) throw invalidField(`${field}[${i}]`, fault);
  }
  return [...new Set(names)].sort();
}
