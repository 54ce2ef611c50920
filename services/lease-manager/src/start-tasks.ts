import type { Db } from "@runmesh/store/db";
import { findStartedLeases, type LeaseKey, startLeases } from "@runmesh/store/leases";
import { explainRefusal } from "./lease-refusal.ts";
import type { ItemOutcome } from "./reports.ts";
import type { Session } from "./sessions.ts";

/** Notes that handlers are about to run, each on its own; one that is noted already is accepted again. */
export async function startTasks(db: Db, session: Session, items: readonly LeaseKey[]): Promise<ItemOutcome[]> {
  const { tenantId, id: sessionId } = session;
  const key = { tenantId, sessionId };
  // Locked in the order of their key, as every statement over many leases does.
  const leases = [...items].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const started = await startLeases(db, { ...key, leases });
  const accepted = new Set(started.map((row) => row.fence));
  const others = leases.filter((lease) => !accepted.has(lease.fence));
  if (others.length > 0) {
    for (const row of await findStartedLeases(db, { ...key, leases: others })) accepted.add(row.fence);
  }
  return Promise.all(
    items.map((lease) => (accepted.has(lease.fence) ? ("accepted" as const) : explainRefusal(db, session, lease))),
  );
}
