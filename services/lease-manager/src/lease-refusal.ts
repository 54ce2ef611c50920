import { MeshError } from "@runmesh/domain/errors";
import type { Db } from "@runmesh/store/db";
import { explainLeases, type LeaseKey } from "@runmesh/store/leases";
import type { Session } from "./sessions.ts";

/** Why a lease was not found as it was named. */
export async function explainRefusal(db: Db, session: Session, lease: LeaseKey): Promise<MeshError> {
  const { tenantId, id: sessionId } = session;
  const [row] = await explainLeases(db, { tenantId, sessionId, leases: [lease] });
  if (row?.run_state !== 2 && row?.run_state !== 3) {
    return new MeshError("RUN_NOT_ACTIVE", `the run of task ${lease.taskId} has ended`);
  }
  if (row.lease_fence !== lease.fence) return stale(lease);
  return new MeshError("LEASE_EXPIRED", `the lease ${lease.fence} of task ${lease.taskId} ran out`);
}

export const stale = (lease: LeaseKey) =>
  new MeshError("FENCE_STALE", `fence ${lease.fence} of task ${lease.taskId} is not current`);
