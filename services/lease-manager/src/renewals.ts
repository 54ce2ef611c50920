import type { Wakeups } from "@runmesh/platform/wakeup";
import { appendLogs, type NewLogLine } from "@runmesh/store/attempt-logs";
import type { Db } from "@runmesh/store/db";
import { keepProgress, type LeaseKey, listSessionLeases, renewLeases, startLeases } from "@runmesh/store/leases";
import { releaseLeases } from "@runmesh/store/release-leases";
import { touchSession } from "@runmesh/store/sessions";
import type { Session } from "./sessions.ts";

export interface NamedLease extends LeaseKey {
  readonly started: boolean;
  readonly progress: Buffer | undefined;
  readonly log: readonly NewLogLine[];
}

export interface RenewalsOptions {
  /** Connections of their own: a renewal never waits behind the work. */
  readonly renewal: Db;
  readonly hot: Db;
  readonly wakeups: Wakeups;
}

export interface Renewed {
  readonly lost: readonly LeaseKey[];
  readonly expiresAt: Date | undefined;
}

/** Extends what a worker names, and gives back what it does not name: the answer that told of it was lost. */
export async function renew(
  { renewal, hot, wakeups }: RenewalsOptions,
  session: Session,
  named: readonly NamedLease[],
  acquiring: boolean,
): Promise<Renewed> {
  const { tenantId, id: sessionId, leaseMs } = session;
  const key = { tenantId, sessionId };
  // Locked in the order of their key, as every statement over many leases does.
  const leases = [...named].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const extended = leases.length === 0 ? [] : await renewLeases(renewal, { ...key, leases, leaseMs });
  const alive = new Set(extended.map((row) => row.task_id));
  const held = leases.filter((lease) => alive.has(lease.taskId));
  const started = held.filter((lease) => lease.started);
  if (started.length > 0) await startLeases(renewal, { ...key, leases: started });
  const told = held.filter((lease) => lease.progress !== undefined);
  if (told.length > 0) {
    await keepProgress(renewal, { ...key, leases: told, progress: told.map((lease) => lease.progress!) });
  }
  const lines = held.flatMap((lease) => lease.log);
  if (lines.length > 0) await appendLogs(hot, { ...key, lines });
  await touchSession(renewal, key);
  await releaseUnnamed({ renewal, hot, wakeups }, session, leases, acquiring);
  const lost = leases.filter((lease) => !alive.has(lease.taskId));
  for (const lease of lost) session.drop(lease);
  return { lost, expiresAt: extended[0]?.expires_at };
}

async function releaseUnnamed(
  { renewal, hot, wakeups }: RenewalsOptions,
  session: Session,
  named: readonly LeaseKey[],
  acquiring: boolean,
): Promise<void> {
  const key = { tenantId: session.tenantId, sessionId: session.id };
  // The answer of an acquire may still be under way.
  const youngMs = acquiring ? Math.ceil(session.leaseMs / 3) : 1_000;
  const all = await listSessionLeases(renewal, { ...key, youngMs });
  const names = new Map(named.map((lease) => [lease.taskId, lease.fence]));
  const unnamed = all
    .filter((row) => names.get(row.task_id) !== row.fence && !row.is_young)
    .map((row) => ({ taskId: row.task_id, fence: row.fence }));
  if (unnamed.length === 0) return;
  const released = await releaseLeases(hot, { ...key, leases: unnamed });
  for (const taskId of released.taskIds) session.held.delete(taskId);
  for (const route of released.routeIds) wakeups.notify(`ready:${route}`);
}
